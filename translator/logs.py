"""Log lines on standard error: text, or one JSON object per line.

A message is a noun phrase; its fields are ``extra={"facts": {...}}``. Text appends them as ``key=value``,
JSON has them next to ``event``. Fields may come from clients, so a line has no character that a terminal or a
reader of lines would obey: line breaks, control and format characters are escaped."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any, Literal

import orjson

from interlingua.schemas import LogSettings

AUDIT = logging.getLogger("interlingua.audit")
"""The audit log: clients that may change the settings of the log cannot hide it."""


class _Text(logging.Formatter):
    iso8601 = False

    def format(self, record: logging.LogRecord) -> str:
        shown = escaped("".join(f" {key}={value}" for key, value in _facts(record).items()))
        moment = datetime.fromtimestamp(record.created, UTC)
        time = moment.isoformat(timespec="milliseconds") if self.iso8601 else moment.strftime("%H:%M:%S")
        line = f"{time} {record.levelname.lower():7} {escaped(record.getMessage())}{shown}"
        if not record.exc_info:
            return line
        # indented, so that no line of an exception's text looks like one of the log
        trace = self.formatException(record.exc_info).split("\n")
        return "\n".join((line, *(f"  {escaped(each)}" for each in trace)))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            shown = orjson.dumps(line, default=str).decode()
        except TypeError:  # unpaired surrogates
            return json.dumps(line, default=str)
        if shown.isprintable():
            return shown
        # those that JSON need not escape, all of them in strings
        return "".join(each if each.isprintable() else _json_escape(each) for each in shown)


def escaped(text: str) -> str:
    """``text`` with every character that is not printable as Python's escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _json_escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else json.dumps(character)[1:-1]


_of_the_process: dict[str, Any] = {}
"""Fields of every line."""


def set_up(level: str, form: Literal["text", "json"], role: str = "") -> None:
    """Send the log of the whole process to standard error. ``level`` is a name such as ``info``. ``role`` is
    that of the process in a server of several, a field of every line."""
    _of_the_process.clear()
    if role:
        _of_the_process["role"] = role
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.addFilter(_Kinds())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def add_audit_file(path: str | None) -> None:
    """Write the audit log to the file at ``path``, too. Raises ``OSError``."""
    if path is None:
        return
    # follows a rotation by logrotate
    handler = WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(_Json())
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
    for handler in logging.getLogger().handlers:
        for kinds in handler.filters:
            if isinstance(kinds, _Kinds):
                kinds.follow(settings)
                logging.getLogger().setLevel(logging.DEBUG if settings["log_verbose_level"] else logging.INFO)
                if isinstance(handler.formatter, _Text):
                    handler.formatter.iso8601 = settings["log_format"] == "ISO8601"


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


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = getattr(record, "facts", {})
    return {**_of_the_process, **facts} if _of_the_process else facts
