"""HTTP/1 messages as bytes in a file: with their headers, or their body alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from interlingua.protocols.wire import HttpAnswer, HttpCall, HttpReply, HttpRequest, parts_of
from interlingua.schemas import ErrorCode, InferenceError

_REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[^\n]*\n")
_END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}


def read_request(data: bytes, like: HttpCall, headers: Mapping[str, str], path: str) -> HttpRequest:
    found = _REQUEST_LINE.match(data)
    if found is None:
        where, _, query = (path or like.path).partition("?")
        return HttpRequest(like.method, where, query or like.query, _with_type(data, headers), data)
    fields, content = _headers_and_body(data, found.end())
    where, _, query = found[2].decode("latin-1").partition("?")
    return HttpRequest(found[1].decode(), where, query, {**fields, **headers}, content)


def read_answer(data: bytes, headers: Mapping[str, str]) -> HttpReply:
    found = _STATUS_LINE.match(data)
    if found is None:
        return HttpReply(200, _with_type(data, headers), data)
    fields, content = _headers_and_body(data, found.end())
    return HttpReply(int(found[1]), {**fields, **headers}, content)


def write(message: HttpCall | HttpAnswer) -> bytes:
    if isinstance(message, HttpCall):
        target = f"{message.path}?{message.query}" if message.query else message.path
        line, headers, parts = (
            f"{message.method} {target} HTTP/1.1",
            tuple(message.headers.items()),
            message.parts,
        )
    else:
        reason = _REASONS.get(message.status, "")
        line, headers, parts = (
            f"HTTP/1.1 {message.status} {reason}",
            tuple(message.headers),
            parts_of(message),
        )
    content = b"".join(map(bytes, parts))
    fields = [f"{name}: {value}" for name, value in headers if name.lower() != "content-length"]
    lines = (line.rstrip(), *fields, f"content-length: {len(content)}", "", "")
    return "\r\n".join(lines).encode("latin-1", "replace") + content


def is_number(text: str) -> bool:
    """Whether ``text`` is a plausible number: ``isdigit`` alone accepts superscripts, and ``int`` refuses
    thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) < 20


def _with_type(content: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
    """``headers``, with a content type that fits the first byte of the body."""
    looks = "application/json" if content.lstrip()[:1] in (b"{", b"[") else "application/octet-stream"
    return {"content-type": looks, **headers}


def _headers_and_body(data: bytes, start: int) -> tuple[dict[str, str], bytes]:
    end = _END_OF_HEADERS.search(data, start - 1)
    if end is None:
        raise _malformed("the head of the HTTP message has no end")
    headers: dict[str, str] = {}
    for line in data[start : end.start()].decode("latin-1").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise _malformed(f"'{line[:80]}' is no header")
        headers[name.strip().lower()] = value.strip()
    content = data[end.end() :]
    if "chunked" in headers.get("transfer-encoding", "").lower():
        del headers["transfer-encoding"]
        return headers, _dechunked(content)
    length = headers.get("content-length", "")
    if length:
        if not is_number(length):
            raise _malformed(f"'{length[:40]}' is not the length of a body")
        if int(length) > len(content):
            raise _malformed(f"the body has {len(content)} bytes, its headers state {int(length)}")
        content = content[: int(length)]
    return headers, content


def _dechunked(content: bytes) -> bytes:
    """The chunks of RFC 9112, section 7.1, joined."""
    pieces: list[bytes] = []
    at = 0
    while True:
        line, newline, _ = content[at : at + 32].partition(b"\r\n")
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            size = -1
        start = at + len(line) + 2
        if size < 0 or not newline or start + size > len(content):
            raise _malformed("the chunks of the body are damaged")
        if not size:
            return b"".join(pieces)
        pieces.append(content[start : start + size])
        at = start + size + 2


def _malformed(text: str) -> InferenceError:
    return InferenceError(ErrorCode.MALFORMED, text)
