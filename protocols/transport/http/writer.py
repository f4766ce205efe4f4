"""Writes answers onto an HTTP/1 connection, and waits where its client is slow to take them.

Small answers go out in one write and large parts are never joined. Of several connections with requests,
small answers leave together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from interlingua.protocols.transport.closing import ended_by
from interlingua.protocols.transport.http1.answer import (
    BODILESS,
    chunk,
    flat,
    head_end,
    head_of,
    header_line,
    size_of,
    sized_end,
    status_line,
    total_size,
)
from interlingua.protocols.transport.http1.arriving import ArrivingBody
from interlingua.protocols.transport.kernel_pipe import KernelPipe
from interlingua.protocols.transport.stall import StallWatch
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.transport.writes import (
    JOINED_BYTES,
    WRITTEN_BYTES,
    batches,
    flushes_of,
    write_pieces,
)
from interlingua.protocols.wire import WHOLE, BodyRest, Buffer, Headers, HttpAnswer, parts_of

_GONE = "the client closed the connection"

_KNOWN_BYTES = 1 << 12
"""How much of a head is kept to write the next one."""

_CHANGING_LINES = 2
"""How many lines at the end of a head differ from answer to answer: Server-Timing, and the request's id."""


_HELD_BYTES = 1 << 12
"""Up to this size, an answer may wait for those to other connections."""


class AnswerWriter:
    """The writing side of one connection. Answers are written in the version HTTP/1.``minor``; ``bodiless``
    ones, to HEAD, without their bodies. Before others write to ``transport``, or close it, they
    :meth:`flush`."""

    def __init__(self, transport: asyncio.Transport, timeouts: Timeouts) -> None:
        self._transport = transport
        self._timeouts = timeouts
        self._stall = StallWatch(transport, timeouts)
        self._pipe_stall: StallWatch | None = None
        self._writable: asyncio.Future[None] | None = None
        # the beginning of the last head, and its status, minor version and headers
        self._begin = b""
        self._status = self._minor = 0
        self._known: Headers = ()
        self._flushes = flushes_of(asyncio.get_running_loop())
        self.held = b""
        """What is not written yet."""
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

    def flush(self) -> None:
        """Write what is held back."""
        held, self.held = self.held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    async def write(
        self, answer: HttpAnswer, minor: int, keep_alive: bool, bodiless: bool, hold: bool
    ) -> bool:
        """Write any answer, and wait for the client where it is slow; the rest as below. Returns whether the
        connection persists."""
        parts = answer.parts
        if answer.rest is not None:
            await self.arriving(answer, answer.rest, minor, keep_alive=keep_alive)
        elif not isinstance(parts, WHOLE) and isinstance(parts, AsyncIterator):
            keep_alive = keep_alive and minor > 0
            await self.stream(answer, parts, minor, keep_alive=keep_alive, bodiless=bodiless)
        elif not self.whole(answer, parts, minor, keep_alive, bodiless, hold):
            await self.large(answer, parts, minor, keep_alive=keep_alive)
        elif self.paused:
            await self.drain()
        return keep_alive

    def whole(
        self,
        answer: HttpAnswer,
        parts: Sequence[Buffer],
        minor: int,
        keep_alive: bool,
        bodiless: bool,
        hold: bool = False,
    ) -> bool:
        """Write an answer that has all of its ``parts``; ``hold`` a small one until the end of the turn.
        Returns whether it is written: large ones are for :meth:`large`. Raises ``ConnectionError`` where the
        client is gone."""
        if self._transport.is_closing():
            raise ConnectionResetError(_GONE)
        size = answer.size
        if answer.status in BODILESS:
            bodiless, end = True, head_end("", minor, keep_alive)
        else:
            end = sized_end(size, minor, keep_alive)
        head = self._head(answer, end, minor)
        if hold and size <= _HELD_BYTES:
            text = head if bodiless else b"".join((head, *parts))
            if self.held:
                self.held += text
            else:
                self.held = text
                self._flushes.add(self.flush)
            return True
        if self.held:
            self.flush()
        if bodiless:
            self._transport.write(head)
        elif size <= JOINED_BYTES:
            self._transport.write(b"".join((head, *parts)))
        elif size <= WRITTEN_BYTES:
            write_pieces(self._transport, (head, *map(flat, parts)), size)
        else:
            return False
        return True

    async def large(
        self, answer: HttpAnswer, parts: Sequence[Buffer], minor: int, *, keep_alive: bool
    ) -> None:
        """Write an answer that has all of its ``parts``, while others have their turns. Raises
        ``ConnectionError`` where the client is gone."""
        head = self._head(answer, sized_end(answer.size, minor, keep_alive), minor)
        for batch, size in batches((head, *map(flat, parts))):
            self._check_client()
            write_pieces(self._transport, batch, size)
            await (self.drain() if self.paused else asyncio.sleep(0))

    async def arriving(self, answer: HttpAnswer, rest: BodyRest, minor: int, *, keep_alive: bool) -> None:
        """Write an answer whose ``rest`` is arriving. Raises what that raises, and ``ConnectionError`` where
        the client is gone."""
        parts = parts_of(answer)
        end = sized_end(answer.size + rest.length, minor, keep_alive)
        try:
            pieces = self._head(answer, end, minor), *map(flat, parts)
            self._check_client()
            self.flush()
            write_pieces(self._transport, pieces, total_size(pieces))
            body = rest if isinstance(rest, ArrivingBody) else None
            if body is not None and body.pipeable:
                await self._pipe(body)
            async for piece in rest:
                if self.paused:
                    await self.drain()
                self._check_client()
                self._transport.write(piece)
                if body is not None and body.pipeable:
                    await self._pipe(body)
            if self.paused:
                await self.drain()
        finally:
            rest.close()

    async def _pipe(self, body: ArrivingBody) -> None:
        """Write more of ``body`` through a pipe."""
        try:
            await body.pipe_to(self._transport, self._pipe_blocked)
        except OSError as fault:
            raise ConnectionResetError(_GONE) from fault
        finally:
            if self._pipe_stall is not None:
                self._pipe_stall.cancel()

    def _pipe_blocked(self, pipe: KernelPipe, blocked: bool) -> None:
        if blocked:
            self._pipe_stall = StallWatch(self._transport, self._timeouts, pipe.unsent)
            self._pipe_stall.start()
        elif self._pipe_stall is not None:
            self._pipe_stall.cancel()

    def _head(self, answer: HttpAnswer, end: bytes, minor: int) -> bytes:
        """The head of ``answer`` with this ``end``. Answers on a connection differ in their last headers,
        Server-Timing for example: the beginning of a head is kept."""
        headers, status, known = answer.headers, answer.status, self._known
        if status != self._status or minor != self._minor or headers[: len(known)] != known:
            self._keep(status, minor, headers)
        begin = self._begin
        for name, value in headers[len(self._known) :]:
            if value.isprintable() and value.isascii():  # header_line, inlined
                begin += f"{name}: {value}\r\n".encode()
            else:
                begin += header_line(name, value)
        return begin + end

    def _keep(self, status: int, minor: int, headers: Headers) -> None:
        """Keep the beginning of a head: up to the last headers that differ from those kept, or all of it."""
        same = 0
        for known, header in zip(self._known, headers, strict=False):
            if known != header:
                break
            same += 1
        if status != self._status or minor != self._minor or same < len(headers) - _CHANGING_LINES:
            same = len(headers)
        lines = [header_line(name, value) for name, value in headers[:same]]
        while sum(map(len, lines)) > _KNOWN_BYTES:
            lines.pop()
        self._status, self._minor, self._known = status, minor, headers[: len(lines)]
        self._begin = b"".join((status_line(status, minor), *lines))

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
        self.flush()
        self._transport.write(head_of(answer.status, answer.headers, framing, minor, keep_alive))
        await ended_by(self._pieces(parts, chunked, bodiless), getattr(parts, "aclose", None))

    async def _pieces(self, parts: AsyncIterator[Buffer], chunked: bool, bodiless: bool) -> None:
        if bodiless:
            return
        async for part in parts:
            if size := size_of(part):
                self._check_client()
                write_pieces(self._transport, chunk(part, size) if chunked else (flat(part),), size)
                await self.drain()
        self._check_client()
        if chunked:
            self._transport.write(b"0\r\n\r\n")

    def _check_client(self) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError(_GONE)
