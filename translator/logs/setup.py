"""Sets up the log of a process, and changes its level while it runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from logging.handlers import WatchedFileHandler
from typing import Any, TextIO

from structlog.typing import EventDict

from interlingua.schemas import LogSettings
from interlingua.translator.logs.output import Output
from interlingua.translator.logs.rendering import Form, Renderer

AUDIT = logging.getLogger("interlingua.audit")
"""The audit log: clients that may change the settings of the log cannot hide it."""


_stream: TextIO | None = None


def write_to(stream: TextIO) -> None:
    """Have :func:`set_up` send the log to ``stream`` instead of standard error."""
    global _stream
    _stream = stream


class _LogHandler(logging.Handler):
    """Writes records to ``output`` as ``renderer`` formats them."""

    def __init__(self, renderer: Renderer, output: Output) -> None:
        super().__init__()
        self.renderer = renderer
        self.output = output
        self.kinds = _Kinds()
        self.setFormatter(renderer.formatter())
        self.addFilter(self.kinds)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.output.write((self.format(record),))
        except Exception:
            self.handleError(record)


def set_up(level: str, form: Form, role: str = "") -> None:
    """Send the log of the whole process to standard error. ``level`` is a name such as ``info``. ``role`` is
    that of the process in a server of several, a field of every line."""
    process: dict[str, Any] = {"role": role} if role else {}
    handler = _LogHandler(Renderer(form, process), Output(_stream or sys.stderr))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def write(events: Iterable[EventDict], output: Output | None = None) -> None:
    """Write ``events``, which have no credentials, to ``output``, by default to the log of the process,
    whatever its level. From any thread. Does nothing before :func:`set_up`. Raises ``OSError``."""
    for handler in _handlers():
        lines = tuple([handler.renderer(event) for event in events])
        (output or handler.output).write(lines)


def add_audit_file(path: str | None) -> None:
    """Write the audit log to the file at ``path``, too. Raises ``OSError``."""
    if path is None:
        return
    # follows a rotation by logrotate
    handler = WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(Renderer("json", _process()).formatter())
    AUDIT.addHandler(handler)
    AUDIT.setLevel(logging.INFO)


def settings(level: str) -> LogSettings:
    lowest: int = getattr(logging, level.upper())
    return {
        "log_info": lowest <= logging.INFO,
        "log_warning": lowest <= logging.WARNING,
        "log_verbose_level": int(lowest <= logging.DEBUG),
    }


def apply(settings: LogSettings) -> None:
    """Apply ``settings`` to the log of the process, if :func:`set_up` made it."""
    for handler in _handlers():
        handler.kinds.follow(settings)
        logging.getLogger().setLevel(logging.DEBUG if settings["log_verbose_level"] else logging.INFO)
        handler.renderer.iso8601 = settings["log_format"] == "ISO8601"


def _handlers() -> list[_LogHandler]:
    return [each for each in logging.getLogger().handlers if isinstance(each, _LogHandler)]


def _process() -> dict[str, Any]:
    """The fields of every line of the process."""
    return dict(_handlers()[0].renderer.process) if _handlers() else {}


class _Kinds(logging.Filter):
    """Passes the levels that the settings enable, and the audit log. Critical lines count as errors."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden: set[int] = set()

    def follow(self, settings: LogSettings) -> None:
        kinds = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
        self._hidden = {kind for name, kind in kinds.items() if not settings[name]}

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name == AUDIT.name or min(record.levelno, logging.ERROR) not in self._hidden
