"""Parses the status line and headers of an HTTP/1 answer, and determines how its body is delimited (RFC 9112,
6.3).

Lines may end with a bare LF (RFC 9112, 2.2) and header values may be folded (5.2), as old servers write them.
No I/O, no body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import httptools

from interlingua.protocols.transport.http1.answer import BODILESS
from interlingua.protocols.transport.http1.headers import (
    MAX_FIELD_BYTES,
    MAX_FIELDS,
    VERSIONS,
    FieldCollector,
    HeadersError,
    feed,
    keeps_alive,
)

END = re.compile(rb"\n\r?\n")
"""The end of a header section."""

CHUNKED, UNTIL_CLOSE = -1, -2
"""Lengths of bodies that have none."""

SWITCHING_PROTOCOLS = 101

_VALUE = re.compile(rb"[ -~]{0,1023}(?=\r)").match
"""A changing value that is recognized: not a long one."""

_TEXT = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
_USUAL = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: %b)?\r\n((?:[!#$%%&'*+\-.^_`|~0-9A-Za-z]+:%b\r\n)*)\r\n"
    % (_TEXT, _TEXT)
)
"""An answer by the grammar of RFC 9112, 4 and 5, which takes no parser."""

CHANGING = frozenset({"date", "server-timing"})
"""Headers that differ between answers that are otherwise alike."""

_FRAMING = frozenset({"connection", "content-length", "transfer-encoding"})
"""Headers that decide where an answer ends and whether another may follow (RFC 9112, 6.3 and 9.3)."""

_MOST_CHANGING = 8
"""How many headers of one server may change."""

_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_FOLD = re.compile(r"[\r\n][ \t\r\n]*")
_FIELD = re.compile(r"([^:]+):[ \t]*([^\r]*?)[ \t]*\r\n")


# not frozen: that costs a microsecond
@dataclass(slots=True)
class ReplyHeaders:
    """An answer up to its body. It depends on its bytes ``raw`` alone, so equal bytes need no parsing.
    ``headers`` have names in lower case; ``length`` is that of the body, CHUNKED or UNTIL_CLOSE."""

    raw: bytes
    status: int
    headers: Mapping[str, str]
    keep_alive: bool
    length: int


def changing(before: ReplyHeaders, after: ReplyHeaders, known: frozenset[str]) -> frozenset[str]:
    """The ``known`` changing headers, and those that differ between two answers with the same ones: of
    TensorRT Inference Server, for example, the one with the number of the request."""
    if before.headers.keys() != after.headers.keys():
        return known
    differ = {name for name, value in after.headers.items() if before.headers[name] != value}
    found = known | (differ - _FRAMING)
    return found if len(found) <= _MOST_CHANGING else known


@lru_cache(64)
def _fields(names: frozenset[str]) -> re.Pattern[bytes]:
    """A line of one of these headers, and its value."""
    either = "|".join(map(re.escape, sorted(names)))
    return re.compile(rf"\r\n({either}):[ \t]*([^\r]*)".encode(), re.IGNORECASE)


class RepeatedReply:
    """Recognizes answers whose headers are those of ``known`` except the values of the ``changing`` ones.
    ``reply`` is the last one that was read."""

    __slots__ = ("_end", "_fields", "_known", "reply")

    def __init__(self, known: ReplyHeaders, changing: frozenset[str] = CHANGING) -> None:
        raw, at = known.raw, 0
        self._known = known.headers
        self.reply = replace(known)
        self._fields: list[tuple[bytes, str]] = []
        # llhttp's headers may be repeated or folded
        for found in _fields(changing).finditer(raw) if type(known.headers) is dict else ():
            self._fields.append((raw[at : found.start(2)], found[1].decode().lower()))
            at = found.end()
        self._end = raw[at:]

    def read(self, data: bytes | bytearray) -> int:
        """Read the headers at the beginning of ``data``. Returns where they end, 0 if they are others."""
        at = 0
        headers = {**self._known}
        for text, name in self._fields:
            if not data.startswith(text, at):
                return 0
            value = _VALUE(data, at + len(text))
            if value is None:
                return 0
            headers[name], at = value[0].decode().strip(), value.end()
        if not at or not data.startswith(self._end, at):
            return 0
        self.reply.headers = headers
        return at + len(self._end)


def reply_parser(protocol: object) -> httptools.HttpResponseParser:
    """A parser of answers."""
    parser = httptools.HttpResponseParser(protocol)
    parser.set_dangerous_leniencies(lenient_headers=True, lenient_optional_cr_before_lf=True)
    return parser


def parse_reply_headers(raw: bytes) -> ReplyHeaders:
    """Parse ``raw``, exactly one header section. Raises ``HeadersError``."""
    usual = _USUAL.fullmatch(raw) if len(raw) <= MAX_FIELD_BYTES else None
    if usual is None:
        return _parse(raw)
    fields = _FIELD.findall(usual[3].decode("utf-8", "surrogateescape"))
    headers = {}
    for name, value in fields:
        headers[name.lower()] = value
    length = headers.get("content-length", "0")
    if len(headers) < len(fields) or len(fields) > MAX_FIELDS or not _LENGTH.fullmatch(length):
        return _parse(raw)
    return _framed(raw, int(usual[2]), headers, int(usual[1]))


def _parse(raw: bytes) -> ReplyHeaders:
    """The same for answers that need llhttp's care."""
    fields = FieldCollector()
    parser = reply_parser(fields)
    feed(parser, raw)
    minor = VERSIONS.get(parser.get_http_version())
    if minor is None or not fields.complete:
        raise HeadersError("the answer is not of HTTP/1.0 or HTTP/1.1")
    for name, value in fields.headers.items():
        if "\0" in value:  # RFC 9110, 5.5
            raise HeadersError(f"the header '{name}' has a NUL")
        if name.split() != [name]:  # else a length could be missed (RFC 9112, 5.1)
            raise HeadersError("a header's name has whitespace")
        fields.headers[name] = _FOLD.sub(" ", value)
    return _framed(raw, parser.get_status_code(), fields.headers, minor)


def _framed(raw: bytes, status: int, headers: Mapping[str, str], minor: int) -> ReplyHeaders:
    """How the body is delimited, and whether the connection persists (RFC 9112, 9.3)."""
    connection, coding = headers.get("connection"), headers.get("transfer-encoding")
    # an upgrade that was not requested leaves a connection of unknown state
    persists = minor > 0 if connection is None else keeps_alive(connection, minor)
    persists = persists and status != SWITCHING_PROTOCOLS
    if coding is not None and (coding.lower() != "chunked" or "content-length" in headers):  # RFC 9112, 6.1
        raise HeadersError("the only transfer coding here is 'chunked', without a Content-Length")
    if status < 200 or status in BODILESS:
        return ReplyHeaders(raw, status, headers, persists, 0)
    if coding is not None:
        return ReplyHeaders(raw, status, headers, persists, CHUNKED)
    if "content-length" in headers:
        return ReplyHeaders(raw, status, headers, persists, int(headers["content-length"]))
    return ReplyHeaders(raw, status, headers, False, UNTIL_CLOSE)
