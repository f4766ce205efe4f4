"""A body of known length whose pieces are taken while it arrives, no faster than they are taken.

The memory for one body is bounded, whatever its length: reading pauses while much of it is not taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from interlingua.protocols.transport.http1.body import SizedBody
from interlingua.protocols.transport.kernel_pipe import PIPED_BYTES, Blocked, KernelPipe, can_pipe
from interlingua.protocols.transport.memory import unfilled
from interlingua.protocols.wire import Buffer
from interlingua.schemas import ErrorCode, InferenceError

STREAMED_BYTES = 1 << 18
"""Larger bodies may leave before they have arrived."""

_HELD_BYTES = 1 << 19
"""How much is held before reading pauses."""

_PIECE_BYTES = 1 << 19
"""How much is received into one buffer."""

_COPIED_BYTES = 1 << 14
"""Up to this size a piece is copied: drips must not cost an object each."""

Ended = Callable[[BaseException | None], None]


class BodySource(Protocol):
    """A connection whose body may go on through a pipe."""

    @property
    def transport(self) -> asyncio.Transport:
        """Where it arrives."""

    def lend(self, lent: bool) -> None:
        """A pipe reads from the transport's socket, or no longer does."""

    def body_piped(self, count: int) -> None:
        """``count`` bytes have arrived, and are in a pipe."""


class ArrivingBody:
    """A ``BodyRest``, and for its connection a body of ``total`` bytes, like ``SizedBody``. ``flow`` is
    called with whether to read on. ``window``: its client never has more than so many bytes on their way, and
    gets credit for what is taken; 0 if it sends as much as is read. It may leave ``source``, if there is one,
    through a pipe."""

    def __init__(
        self,
        total: int,
        flow: Callable[[bool], None],
        loop: asyncio.AbstractEventLoop,
        window: int = 0,
        source: BodySource | None = None,
    ) -> None:
        self.size = 0
        """How many bytes have arrived."""
        self.complete = False
        self.length = self.least_size = total
        self._total = total
        self._flow = flow
        self._loop = loop
        self._most = window or _HELD_BYTES + _PIECE_BYTES
        self._pauses_at = window // 2 or _HELD_BYTES
        self._first = b""
        self._pieces: deque[Buffer] = deque()
        self._space = memoryview(b"")
        self._begin = self._end = 0  # _space[_begin:_end] has arrived and is not taken
        self._held = 0
        self._paused = False
        self._left = total
        self._tail: Buffer = b""
        self._whole: SizedBody | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._fault: BaseException | None = None
        self._calls: list[Ended] = []
        self._source = source
        self._pipe: KernelPipe | None = None
        self._sink_blocked: Blocked | None = None

    # for the connection that receives it

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return self._total - self.size

    @property
    def held(self) -> int:
        """How many bytes are here, or may be before reading pauses."""
        most = min(self._total, self._most)
        return most if self._whole is None else max(most, self._whole.size)

    @property
    def taken(self) -> int:
        """How many bytes are here no longer, or belong to the whole body."""
        return self.size - self._held

    def feed(self, data: Buffer, at: int) -> int:
        """Take the bytes of the body from ``data[at:]``. Returns where they end."""
        end = min(at + self.missing, len(data))
        if self._whole is not None:
            self._whole.feed(data, at)
        elif end - at > _COPIED_BYTES:
            self._seal()
            # a bytearray changes
            self._pieces.append(memoryview(data)[at:end] if type(data) is bytes else bytes(data[at:end]))
        else:
            place = at
            while place < end:
                space = self.buffer()[: end - place]
                space[:] = data[place : place + len(space)]
                self._end += len(space)
                place += len(space)
        self._arrived(end - at)
        return end

    def buffer(self) -> memoryview:
        """Space for bytes that are missing."""
        if self._whole is not None:
            return self._whole.buffer()
        if self._end == len(self._space):
            self._seal()
            self._space = unfilled(min(_PIECE_BYTES, self.missing))
            self._begin = self._end = 0
        return self._space[self._end : self._end + self.missing]

    def fill(self, count: int) -> None:
        """Note that ``count`` bytes have arrived in :meth:`buffer`."""
        if self._pipe is not None:
            self._left -= count
        elif self._whole is not None:
            self._whole.fill(count)
        else:
            self._end += count
        self._arrived(count)

    def split(self, count: int) -> bytes:
        """The first ``count`` bytes, which have arrived, and which the pieces then lack."""
        first = bytearray()
        while len(first) < count:
            piece = memoryview(self._take() or b"")
            wanted = count - len(first)
            first += piece[:wanted]
            if len(piece) > wanted:
                self._pieces.appendleft(piece[wanted:])
                self._held += len(piece) - wanted
        self._first = bytes(first)
        self.length = self._left = self._total - count
        return self._first

    def fail(self, fault: BaseException) -> None:
        """The rest does not arrive, because of ``fault``."""
        if not self.complete and self._fault is None:
            self._fault = fault
            self.end_pipe()
            self._wake()
            self._finish(fault)

    def end_pipe(self) -> None:
        """The source is gone, or the body has failed."""
        if self._pipe is not None:
            self._pipe.stop()

    # for its reader, see BodyRest

    def __aiter__(self) -> ArrivingBody:
        return self

    async def __anext__(self) -> Buffer:
        while True:
            piece = self._take()
            if piece is not None:
                piece = piece[: self._left]
                self._left -= len(piece)
                if piece:
                    return piece
            elif self._fault is not None:
                raise self._fault
            elif not self.complete:
                await self._more()
            elif self._tail:
                tail, self._tail = self._tail, b""
                return tail
            else:
                raise StopAsyncIteration

    @property
    def pipeable(self) -> bool:
        """Whether :meth:`pipe_to` may move what is still to come."""
        return (
            self._source is not None
            and not self._held
            and self._whole is None
            and self._fault is None
            and min(self._left, self.missing) >= PIPED_BYTES
        )

    async def pipe_to(self, sink: asyncio.Transport, blocked: Blocked) -> None:
        """Move the bytes to come to the socket of ``sink``, if that is possible now. The pieces go on after
        those that were moved. Raises ``OSError`` if the sink fails."""
        if sink.get_write_buffer_size():
            await asyncio.sleep(0)  # uvloop writes at the end of its turn
        source = self._source
        if source is None or not self.pipeable or not can_pipe(source.transport, sink):
            return
        left = min(self._left, self.missing)
        try:
            pipe = KernelPipe(source.transport, sink, left, partial(self._piped, source), self._pipe_blocked)
        except OSError:
            return  # few descriptors, or pages for pipes, are free
        self._pipe, self._sink_blocked = pipe, blocked
        self._space, self._begin, self._end = memoryview(b""), 0, 0
        source.lend(True)
        try:
            await pipe.run()
        finally:
            self._take_back()

    async def whole(self) -> Buffer:
        """The first bytes and the rest in one buffer, once all is here. Raises as the pieces."""
        whole = self._whole = SizedBody(self._total)
        try:
            whole.feed(self._first, 0)
            while (piece := self._take()) is not None:
                whole.feed(piece, 0)
        except MemoryError as fault:
            raise InferenceError(ErrorCode.OVERLOADED, "no memory for the request body") from fault
        while not whole.complete:
            if self._fault is not None:
                raise self._fault
            await self._more()
        return whole.whole()

    def end_with(self, size: int, tail: Buffer) -> None:
        """Give ``tail`` instead of what follows the next ``size`` bytes."""
        self._left, self._tail, self.length = size, tail, size + len(tail)

    def on_end(self, call: Ended) -> None:
        """Call ``call`` once everything has arrived (None), or never will."""
        if self.complete or self._fault is not None:
            call(self._fault)
        else:
            self._calls.append(call)

    def close(self) -> None:
        """Take no more of it."""
        self._pieces.clear()
        self._begin = self._end
        self.fail(asyncio.CancelledError())

    # inside

    def _seal(self) -> None:
        if self._end > self._begin:
            self._pieces.append(self._space[self._begin : self._end])
            self._begin = self._end

    def _take(self) -> Buffer | None:
        """What has arrived first, None if there is nothing."""
        piece: Buffer
        if self._pieces:
            piece = self._pieces.popleft()
        elif self._end > self._begin:
            piece = self._space[self._begin : self._end]
            self._begin = self._end
        else:
            return None
        self._held -= len(piece)
        if self._paused and self._held < self._pauses_at and self._fault is None:
            self._paused = False
            self._flow(True)
        return piece

    def _piped(self, source: BodySource, count: int) -> None:
        source.body_piped(count)
        if self.complete:
            self._take_back()

    def _pipe_blocked(self, pipe: KernelPipe, blocked: bool) -> None:
        if not self.complete and self._fault is None:
            self._flow(not blocked)
        if self._sink_blocked is not None:
            self._sink_blocked(pipe, blocked)

    def _take_back(self) -> None:
        """The event loop receives again."""
        if self._pipe is not None and self._source is not None:
            self._pipe = None
            self._source.lend(False)

    def _arrived(self, count: int) -> None:
        self.size += count
        self.complete = self.size == self._total
        if self._whole is None and self._pipe is None:
            self._held += count
            if self._held >= self._pauses_at and not (self._paused or self.complete or self._fault):
                self._paused = True
                self._flow(False)
        self._wake()
        if self.complete:
            self._finish(None)

    async def _more(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _finish(self, fault: BaseException | None) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call(fault)
