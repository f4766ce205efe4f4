"""Renders log lines, by a chain of structlog's processors; see docs/adr/structlog.md.

Records of the standard library and events of our own (``write``) go through the same chain. An event is a
dictionary with ``time`` (seconds since the epoch), ``level``, ``event`` and its fields.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from structlog.processors import JSONRenderer, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from interlingua.schemas.bounded_text import shortened
from interlingua.translator.logs.redaction import redacted
from interlingua.translator.logs.wrapper import LINE_BYTES

Form = Literal["text", "json"]

_SHORT_CHARS = 256

_UNUSUAL = re.compile(r"""[ ="'\\]""")
_SPECIAL, _BACKSLASHED = re.compile(r'["\\]'), r"\\\g<0>"

_FIRST = ("time", "level", "event", "logger")
"""What every event has."""


class Renderer:
    """Renders events in ``form``; ``process`` are fields of every line."""

    def __init__(self, form: Form, process: Mapping[str, Any]) -> None:
        self.form = form
        self.iso8601 = False
        """Whether times in text have a date."""
        self.process = process
        last: tuple[Processor, ...] = (self._text,)
        if form == "json":
            last = (_json_time, JSONRenderer(serializer=_json_line))
        self._chain: tuple[Processor, ...] = (self._of_the_process, *last)

    def __call__(self, event: EventDict) -> str:
        """The line of an event of our own, which has no credentials."""
        rendered: Any = event
        for processor in self._chain:
            rendered = processor(None, "", rendered)
        return str(rendered)

    def formatter(self) -> logging.Formatter:
        """A formatter of records of the standard library."""
        before: list[Processor] = [_of_a_record, format_exc_info, _redact]
        return ProcessorFormatter(
            foreign_pre_chain=before, processors=[ProcessorFormatter.remove_processors_meta, *self._chain]
        )

    def _of_the_process(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        if not self.process:
            return event
        return {**{key: event.pop(key) for key in _FIRST}, **self.process, **event}

    def _text(self, _: WrappedLogger, __: str, event: EventDict) -> str:
        moment = datetime.fromtimestamp(event.pop("time"), UTC)
        time = moment.isoformat(timespec="milliseconds") if self.iso8601 else moment.strftime("%H:%M:%S")
        level, message, trace = event.pop("level"), event.pop("event"), event.pop("exception", None)
        del event["logger"]
        fields = "".join(f" {_quoted(str(key))}={_quoted(str(value))}" for key, value in event.items())
        line = f"{time} {level:7} {escaped(message)}{fields}"
        if trace is None:
            return line
        # indented, so that no line of an exception's text looks like one of the log
        return "\n".join((line, *(f"  {escaped(each)}" for each in trace.split("\n"))))


def escaped(text: str) -> str:
    """``text`` with every character that is not printable as Python's escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _quoted(text: str) -> str:
    """``text`` as a key or a value: in quotes where it has more than usual characters, so that it forges no
    other field."""
    if text.isprintable() and not _UNUSUAL.search(text):
        return text
    return f'"{escaped(_SPECIAL.sub(_BACKSLASHED, text))}"'


def _of_a_record(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """The event of a record of the standard library."""
    record: logging.LogRecord = event["_record"]
    return {
        "_record": record,
        "_from_structlog": False,
        "time": record.created,
        "level": record.levelname.lower(),
        "event": event["event"],
        "logger": record.name,
        **getattr(record, "facts", {}),
        **({"exc_info": record.exc_info} if record.exc_info else {}),
    }


def _redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {key: value if key == "_record" else _redacted(value) for key, value in event.items()}


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): _redacted(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(each) for each in value]
    return redacted(str(value))


def _json_time(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event["time"] = datetime.fromtimestamp(event["time"], UTC).isoformat(timespec="milliseconds")
    return event


def _json_line(event: EventDict, **_: Any) -> str:
    """One line of JSON, of at most ``LINE_BYTES`` with its end. Long fields are shortened for that."""
    line = _json(event)
    limit = LINE_BYTES
    while len(line.encode()) >= LINE_BYTES and limit > _SHORT_CHARS:
        limit //= 2
        line = _json({key: _shorter(value, limit) for key, value in event.items()})
    return line


def _shorter(value: Any, limit: int) -> Any:
    """A text, or a list in JSON, of at most about ``limit`` characters."""
    if isinstance(value, dict | list):
        value = _json(value)
    return shortened(value, limit) if isinstance(value, str) else value


def _json(event: Any) -> str:
    try:
        shown = orjson.dumps(event, default=str).decode()
    except TypeError:  # unpaired surrogates
        return json.dumps(event, default=str)
    if shown.isprintable():
        return shown
    # those that JSON need not escape, all of them in strings
    return "".join(each if each.isprintable() else _json_escape(each) for each in shown)


def _json_escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else json.dumps(character)[1:-1]
