"""The settings of traces and of the log on each transport.

Values of traces are texts, over HTTP a single one without an array, except for the levels; null, or no value,
resets a setting. Names and values are not checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlingua.schemas import LogSettings, TraceSettings, invalid_tensor, malformed

_LIST = "trace_level"
"""The only setting with several values."""

_LOG_CHOICES = {bool: "bool_param", int: "uint32_param", str: "string_param"}


def read_trace_document(document: Mapping[str, Any]) -> TraceSettings:
    """The changes in a JSON object. Raises MALFORMED naming the setting."""
    return {key: _trace_values(key, value) for key, value in document.items()}


def write_trace_document(settings: TraceSettings) -> dict[str, Any]:
    """``settings`` as a JSON object."""
    return {key: list(values) if key == _LIST else "".join(values) for key, values in settings.items()}


def read_trace_message(given: Mapping[str, Any]) -> TraceSettings:
    """The changes in a message's settings."""
    return {key: tuple(value.value) for key, value in given.items()}


def trace_fields(settings: TraceSettings) -> dict[str, Any]:
    """``settings`` as the fields of a message."""
    return {"settings": {key: {"value": values} for key, values in settings.items()}}


def read_log_document(document: Mapping[str, Any]) -> LogSettings:
    """The changes in a JSON object. Raises MALFORMED naming the setting."""
    for key, value in document.items():
        if type(value) not in _LOG_CHOICES:
            raise malformed(f"setting '{key[:40]}' must be a boolean, an unsigned integer or a string")
    return dict(document)


def read_log_message(given: Mapping[str, Any]) -> LogSettings:
    """The changes in a message's settings. Raises INVALID_TENSOR for one without a value."""
    found: dict[str, bool | int | str] = {}
    for key, value in given.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is None:
            raise invalid_tensor(f"setting '{key[:40]}' has no value")
        found[key] = getattr(value, choice)
    return found


def log_fields(settings: LogSettings) -> dict[str, Any]:
    """``settings`` as the fields of a message."""
    return {"settings": {key: {_LOG_CHOICES[type(value)]: value} for key, value in settings.items()}}


def _trace_values(key: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    values = value if type(value) is list else [value]
    if not all(type(each) is str for each in values):
        raise malformed(f"setting '{key[:40]}' must be a string" + " or an array of them" * (key == _LIST))
    return tuple(values)
