"""The settings of the log, which clients may read and change while the server runs. Clients cannot choose the
path of a file. ``translator.tracing.settings`` has those of traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from interlingua.schemas import ErrorCode, InferenceError, LogSettings
from interlingua.translator.tracing.settings import either, refuse

_LARGEST = 2**32 - 1
_LOG_FORMATS = ("default", "ISO8601")


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
            refuse(f"setting '{name}' must be {_WORDS[wanted]}")
        if wanted is int and not 0 <= int(value) <= _LARGEST:
            refuse(f"setting '{name}' must be an unsigned 32-bit integer, got {value}")
        if name == "log_format" and value not in _LOG_FORMATS:
            refuse(f"setting 'log_format' must be {either(_LOG_FORMATS)}, got '{str(value)[:40]}'")


_WORDS: Mapping[type, str] = {bool: "a boolean", int: "an unsigned integer", str: "a string"}
