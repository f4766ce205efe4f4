"""The bytes of an ``HttpAnswer``: its header section, and its parts ready to be written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from interlingua.protocols.wire import Buffer, Headers, HttpAnswer

BODILESS = frozenset({204, 304})
"""Statuses without a body (RFC 9112, 6.3) and its length (RFC 9110, 8.6)."""

_REASONS = {status.value: status.phrase for status in HTTPStatus}
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What no value of a header has (RFC 9110, 5.5)."""


def head_of(status: int, headers: Headers, framing: str, minor: int, keep_alive: bool) -> bytes:
    """The status line and headers of an answer in HTTP/1.``minor``. ``framing`` is the header that delimits
    its body; a Connection header is added where the version's default differs (RFC 9112, 9.3)."""
    lines = [header_line(name, value) for name, value in headers]
    return b"".join((status_line(status, minor), *lines, head_end(framing, minor, keep_alive)))


@lru_cache(256)
def status_line(status: int, minor: int) -> bytes:
    """The first line of a head."""
    return f"HTTP/1.{minor} {status} {_REASONS.get(status, '')}\r\n".encode()


def header_line(name: str, value: str) -> bytes:
    """The line of a header."""
    if not value.isprintable():  # a control character could end the line
        value = CONTROL.sub(" ", value)
    return f"{name}: {value}\r\n".encode(errors="replace")


@lru_cache(256)
def head_end(framing: str, minor: int, keep_alive: bool) -> bytes:
    """The rest of a head after its own headers; see :func:`head_of`."""
    if not keep_alive:
        framing += "connection: close\r\n"
    elif minor == 0:
        framing += "connection: keep-alive\r\n"
    return f"{framing}\r\n".encode()


@lru_cache(256)
def sized_end(size: int, minor: int, keep_alive: bool) -> bytes:
    """The same for a body of ``size`` bytes."""
    return head_end(f"content-length: {size}\r\n", minor, keep_alive)


def text_answer(status: int, text: str) -> HttpAnswer:
    """A line of plain text, for errors below the dialects."""
    return HttpAnswer(status, (("content-type", "text/plain; charset=utf-8"),), (f"{text}\n".encode(),))


def size_of(part: Buffer) -> int:
    """The size of a part in bytes, whatever the items of its view."""
    return part.nbytes if isinstance(part, memoryview) else len(part)


def total_size(parts: Iterable[Buffer]) -> int:
    """The size of ``parts`` together."""
    size = 0
    for part in parts:
        size += part.nbytes if isinstance(part, memoryview) else len(part)
    return size


def chunk(part: Buffer, size: int) -> tuple[Buffer, ...]:
    """A chunk (RFC 9112, 7.1) with a ``part`` of ``size`` bytes, not 0."""
    return b"%x\r\n" % size, flat(part), b"\r\n"


def flat(part: Buffer) -> Buffer:
    """The part as bytes items, which asyncio's own transport counts in."""
    if isinstance(part, memoryview) and part.nbytes and (part.ndim != 1 or part.itemsize != 1):
        return part.cast("B")
    return part
