"""The settings that clients may read and change while the server runs: those of traces and of the log.

The server traces nothing: the settings exist for clients that set them before they measure. Clients cannot
choose the path of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from interlingua.schemas import ErrorCode, InferenceError, LogSettings, TraceSettings

_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS", "MIN", "MAX")
_TRACE_DEFAULTS: TraceSettings = {
    "trace_level": ("OFF",),
    "trace_rate": ("1000",),
    "trace_count": ("-1",),
    "log_frequency": ("0",),
    "trace_file": ("",),
    "trace_mode": ("triton",),
}
_LOWEST = {"trace_rate": 0, "trace_count": -1, "log_frequency": 0}
"""The least values of numeric trace settings."""

_INTEGER = re.compile("-?[0-9]{1,10}")
_LARGEST = 2**32 - 1
_LOG_FORMATS = ("default", "ISO8601")


class TraceBook:
    def __init__(self) -> None:
        self._server: dict[str, tuple[str, ...]] = {}
        self._models: dict[str, dict[str, tuple[str, ...]]] = {}

    def settings(self, model: str = "") -> TraceSettings:
        """The settings of ``model``, or of the server."""
        return {**_TRACE_DEFAULTS, **self._server, **self._models.get(model, {})}

    def change(self, model: str, changes: TraceSettings) -> None:
        """Set all of ``changes``, or none. An empty value resets a setting: a model's to the server's, the
        server's to the default. Unknown names are ignored, as by Triton. Raises INVALID_TENSOR naming the
        setting, UNSUPPORTED for the file."""
        known = {name: values for name, values in changes.items() if name in _TRACE_DEFAULTS}
        for name, values in known.items():
            if values or name == "trace_file":
                _check_trace(name, values)
        held = self._models.setdefault(model, {}) if model else self._server
        for name, values in known.items():
            # fixed when the server starts
            if name == "trace_mode":
                continue
            if values:
                held[name] = values
            else:
                held.pop(name, None)


class LogBook:
    """The settings of the log. ``apply`` gets all of them after each change."""

    def __init__(
        self, settings: LogSettings | None = None, apply: Callable[[LogSettings], None] | None = None
    ) -> None:
        self._settings: dict[str, bool | int | str] = {
            "log_file": "",
            "log_info": True,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 0,
            "log_format": "default",
            **(settings or {}),
        }
        self._apply = apply

    def settings(self) -> LogSettings:
        return dict(self._settings)

    def change(self, changes: LogSettings) -> None:
        """Set all of ``changes``, or none. Unknown names are ignored, as by Triton. Raises INVALID_TENSOR
        naming the setting, UNSUPPORTED for the file."""
        known = {name: value for name, value in changes.items() if name in self._settings}
        for name, value in known.items():
            self._check(name, value)
        self._settings |= known
        if known and self._apply is not None:
            self._apply(self.settings())

    def _check(self, name: str, value: bool | int | str) -> None:
        if name == "log_file":
            raise InferenceError(
                ErrorCode.UNSUPPORTED, "log file location can not be updated through network protocol"
            )
        wanted = type(self._settings[name])
        if type(value) is not wanted:
            _refuse(f"setting '{name}' must be {_WORDS[wanted]}")
        if wanted is int and not 0 <= int(value) <= _LARGEST:
            _refuse(f"setting '{name}' must be an unsigned 32-bit integer, got {value}")
        if name == "log_format" and value not in _LOG_FORMATS:
            _refuse(f"setting 'log_format' must be {_either(_LOG_FORMATS)}, got '{str(value)[:40]}'")


_WORDS: Mapping[type, str] = {bool: "a boolean", int: "an unsigned integer", str: "a string"}


def _check_trace(name: str, values: tuple[str, ...]) -> None:
    if name == "trace_file":
        raise InferenceError(
            ErrorCode.UNSUPPORTED, "trace file location can not be updated through network protocol"
        )
    if name == "trace_level":
        for level in values:
            if level not in _LEVELS:
                _refuse(f"setting 'trace_level' must be {_either(_LEVELS)}, got '{level[:40]}'")
        if "OFF" in values and len(values) > 1:
            _refuse("Expect only one trace level 'OFF' is specified")
    elif len(values) != 1:
        _refuse(f"setting '{name}' must have one value, got {len(values)}")
    elif name in _LOWEST:
        (text,) = values
        if not _INTEGER.fullmatch(text) or not _LOWEST[name] <= int(text) <= _LARGEST:
            _refuse(
                f"setting '{name}' must be an integer from {_LOWEST[name]} to {_LARGEST}, got '{text[:40]}'"
            )


def _either(words: Iterable[str]) -> str:
    return " or ".join(f"'{word}'" for word in words)


def _refuse(message: str) -> NoReturn:
    raise InferenceError(ErrorCode.INVALID_TENSOR, message)
