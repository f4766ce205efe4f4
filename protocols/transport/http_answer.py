"""Writes an ``HttpAnswer`` onto an aiohttp connection.

aiohttp's own response classes build a header mapping, guess a content type and add Server and Date;
here the head is one string, small answers go out in one write and large parts are never joined.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from protocols.transport.stall import StallWatch
from protocols.wire import Buffer, HttpAnswer

JOINED_BYTES = 1 << 16
"""Parts up to this size together are copied into one write: cheaper than two system calls."""

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_BODILESS = frozenset({204, 304})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Answer(web.StreamResponse):
    """An answer as aiohttp wants it: ``prepare`` writes all of it.

    ``close`` ends the connection afterwards; ``written`` is called once, whatever happens.
    """

    def __init__(
        self, answer: HttpAnswer, close: bool, stall_secs: float, written: Callable[[], None]
    ) -> None:
        super().__init__(status=answer.status)
        self._answer = answer
        self._close = close
        self._stall_secs = stall_secs
        self._written = written

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write head and body. Raises ``ConnectionError`` where the client is gone."""
        try:
            parts = self._answer.parts
            if isinstance(parts, AsyncIterator):
                await self._stream(request, parts)
            else:
                await self._whole(request, parts)
        finally:
            self._written()
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write after ``prepare``."""

    async def _whole(self, request: web.BaseRequest, parts: Sequence[Buffer]) -> None:
        size = sum(map(size_of, parts))
        bodiless = self._answer.status in _BODILESS
        head = self._head(request, "" if bodiless else f"content-length: {size}\r\n")
        transport = _transport(request)
        if bodiless or request.method == "HEAD":
            transport.write(head)
        elif size <= JOINED_BYTES:
            transport.write(b"".join((head, *parts)) if size else head)
        else:
            transport.write(head)
            for part in parts:
                if flat := _flat(part):
                    transport.write(flat)
            await self._drain(request)

    async def _stream(self, request: web.BaseRequest, parts: AsyncIterator[Buffer]) -> None:
        chunked = request.version >= (1, 1)
        if not chunked:  # HTTP/1.0 knows no chunks: the end of the connection is the end of the body
            self._close = True
        transport = _transport(request)
        transport.write(self._head(request, "transfer-encoding: chunked\r\n" if chunked else ""))
        try:
            if request.method != "HEAD":
                async for part in parts:
                    if size := size_of(part):
                        # not writelines: asyncio's forgets to pause before Python 3.12.9 and 3.13.2
                        transport = _transport(request)
                        if chunked:
                            transport.write(b"%x\r\n" % size)
                        transport.write(_flat(part))
                        if chunked:
                            transport.write(b"\r\n")
                        await self._drain(request)
                if chunked:
                    _transport(request).write(b"0\r\n\r\n")
        except BaseException:
            # half an answer must not look like a whole one
            transport.abort()
            raise
        finally:
            if (close := getattr(parts, "aclose", None)) is not None:
                await close()

    def _head(self, request: web.BaseRequest, framing: str) -> bytes:
        status = self._answer.status
        major, minor = request.version
        self._keep_alive = request.keep_alive and not self._close
        if not self._keep_alive:
            framing += "connection: close\r\n"
        elif minor == 0:
            framing += "connection: keep-alive\r\n"
        lines = "".join([f"{name}: {_line(value)}\r\n" for name, value in self._answer.headers])
        text = f"HTTP/{major}.{minor} {status} {_REASONS.get(status, '')}\r\n{lines}{framing}\r\n"
        return text.encode(errors="replace")

    async def _drain(self, request: web.BaseRequest) -> None:
        """Wait until the client has taken most of it."""
        transport = _transport(request)
        if transport.get_write_buffer_size():
            watch = StallWatch(transport, self._stall_secs)
            try:
                await request.writer.drain()
            finally:
                watch.cancel()


def size_of(part: Buffer) -> int:
    """The size of a part in bytes, whatever the items of its view."""
    return part.nbytes if isinstance(part, memoryview) else len(part)


def _flat(part: Buffer) -> Buffer:
    """The part as bytes items, which asyncio's own transport counts in."""
    if isinstance(part, memoryview) and part.nbytes and (part.ndim != 1 or part.itemsize != 1):
        return part.cast("B")
    return part


def _line(value: str) -> str:
    """A header value that cannot end its line."""
    return value if value.isprintable() else _CONTROL.sub(" ", value)


def _transport(request: web.BaseRequest) -> asyncio.Transport:
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client closed the connection")
    return transport
