"""Writes answers onto an HTTP/1 connection, and waits where its client is slow to take them.

Small answers go out in one write and large parts are never joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from interlingua.protocols.transport.http1.answer import (
    BODILESS,
    chunk,
    flat,
    head_begin,
    head_end,
    head_of,
    size_of,
    total_size,
)
from interlingua.protocols.transport.stall import StallWatch
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.transport.writes import JOINED_BYTES, write_pieces
from interlingua.protocols.wire import BodyRest, Buffer, HttpAnswer, parts_of

_GONE = "the client closed the connection"

_KNOWN_BYTES = 1 << 12
"""The longest head that is kept to write the next one."""


class AnswerWriter:
    """The writing side of one connection. Answers are written in the version HTTP/1.``minor``; ``bodiless``
    ones, to HEAD, without their bodies."""

    def __init__(self, transport: asyncio.Transport, timeouts: Timeouts) -> None:
        self._transport = transport
        self._stall = StallWatch(transport, timeouts)
        self._writable: asyncio.Future[None] | None = None
        self._begun: tuple[object, ...] = ()
        self._beginning = b""  # of the head with the values in _begun
        self.paused = False
        """Whether there is something to ``drain``."""

    def pause(self) -> None:
        """The client takes its answer slower than it is written."""
        self._writable = asyncio.get_running_loop().create_future()
        self.paused = True

    def resume(self) -> None:
        """It has taken most of it."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
        self.paused = False

    async def drain(self) -> None:
        """Wait until the client has taken most of what is written; closes the connection of
        a client that stops reading."""
        if self._writable is not None:
            self._stall.start()
            try:
                await self._writable
            finally:
                self._stall.cancel()

    def whole(
        self, answer: HttpAnswer, parts: Sequence[Buffer], minor: int, *, keep_alive: bool, bodiless: bool
    ) -> None:
        """Write an answer that has all of its ``parts``. Raises ``ConnectionError`` where the client is
        gone."""
        if self._transport.is_closing():
            raise ConnectionResetError(_GONE)
        size = total_size(parts)
        bodiless = bodiless or not size
        framing = f"content-length: {size}\r\n"
        if answer.status in BODILESS:
            bodiless, framing = True, ""
        head = self._head(answer, framing, minor, keep_alive)
        write = self._transport.write
        if bodiless:
            write(head)
        elif size <= JOINED_BYTES:
            write(b"".join((head, *parts)))
        else:
            write_pieces(self._transport, (head, *map(flat, parts)), size)

    async def arriving(self, answer: HttpAnswer, rest: BodyRest, minor: int, *, keep_alive: bool) -> None:
        """Write an answer whose ``rest`` is arriving. Raises what that raises, and ``ConnectionError`` where
        the client is gone."""
        parts = parts_of(answer)
        framing = f"content-length: {total_size(parts) + rest.length}\r\n"
        try:
            pieces = self._head(answer, framing, minor, keep_alive), *map(flat, parts)
            self._check_client()
            write_pieces(self._transport, pieces, total_size(pieces))
            async for piece in rest:
                if self.paused:
                    await self.drain()
                self._check_client()
                self._transport.write(piece)
            if self.paused:
                await self.drain()
        finally:
            rest.close()

    def _head(self, answer: HttpAnswer, framing: str, minor: int, keep_alive: bool) -> bytes:
        """See ``head_of``. Answers on a connection often differ in their last header alone, Server-Timing."""
        headers = answer.headers
        begun = (answer.status, minor, *headers[:-1])
        if begun != self._begun:
            beginning = head_begin(answer.status, headers[:-1], minor)
            # a long one is not kept
            self._begun, self._beginning = begun if len(beginning) <= _KNOWN_BYTES else (), beginning
        return self._beginning + head_end(headers[-1:], framing, minor, keep_alive)

    async def stream(
        self,
        answer: HttpAnswer,
        parts: AsyncIterator[Buffer],
        minor: int,
        *,
        keep_alive: bool,
        bodiless: bool,
    ) -> None:
        """Write an answer whose parts are still to come, and close them. Without chunks, which HTTP/1.0 does
        not know, the end of the connection has to be the end of the body. Raises what ``parts`` raises, and
        ``ConnectionError`` where the client is gone."""
        chunked = minor > 0
        framing = "transfer-encoding: chunked\r\n" if chunked else ""
        self._transport.write(head_of(answer.status, answer.headers, framing, minor, keep_alive))
        try:
            if not bodiless:
                async for part in parts:
                    if size := size_of(part):
                        self._check_client()
                        self._piece(part, size, chunked=chunked)
                        await self.drain()
                self._check_client()
                if chunked:
                    self._transport.write(b"0\r\n\r\n")
        finally:
            if (close := getattr(parts, "aclose", None)) is not None:
                await close()

    def _piece(self, part: Buffer, size: int, *, chunked: bool) -> None:
        write_pieces(self._transport, chunk(part, size) if chunked else (flat(part),), size)

    def _check_client(self) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError(_GONE)
