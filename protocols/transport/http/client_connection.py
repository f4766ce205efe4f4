"""A connection to an HTTP upstream: the ``asyncio.Protocol`` around a ``ReplyReader``, one request at a
time."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic
from typing import cast

from interlingua.protocols.plans import SentWaiter
from interlingua.protocols.transport.deadlines import Deadlines
from interlingua.protocols.transport.direct_body import DIRECT_BYTES, DirectBody
from interlingua.protocols.transport.http.client_errors import HttpClientErrors
from interlingua.protocols.transport.http1.answer import chunk, flat, size_of
from interlingua.protocols.transport.http1.arriving import ArrivingBody
from interlingua.protocols.transport.http1.body import BodyError
from interlingua.protocols.transport.http1.headers import HeadersError
from interlingua.protocols.transport.http1.reply_headers import ReplyHeaders
from interlingua.protocols.transport.http1.reply_reader import BODY, IDLE, ReplyReader
from interlingua.protocols.transport.kernel_pipe import KernelPipe
from interlingua.protocols.transport.sockets import send_at_once
from interlingua.protocols.transport.turns import COUNTED_BYTES, Turn
from interlingua.protocols.transport.writes import JOINED_BYTES, write_pieces
from interlingua.protocols.wire import Buffer, HttpReply, Prefix

Received = asyncio.Future[HttpReply]
"""An answer in its content coding; or a piece of a streamed one, which ends with an empty piece."""

_HELD_BYTES = 1 << 18
"""How much of a streamed answer is buffered before reading pauses."""

_INPUT = select.POLLIN | select.POLLRDHUP


class HttpClientConnection(asyncio.Protocol):
    """``free`` is called when another request may follow, with the status of the last answer, and ``lost``
    when the connection has ended.
    ``deadline`` is that of the current request, one of ``deadlines``. It is paused while we wait for more of
    the request, or for the reader of its answer. ``heard``: a byte of the answer has arrived."""

    def __init__(
        self,
        errors: HttpClientErrors,
        limit: int | None,
        deadlines: Deadlines,
        free: Callable[[HttpClientConnection, int], None],
        lost: Callable[[HttpClientConnection], None],
    ) -> None:
        self.deadline: float | None = None
        self.idle_since = 0.0
        self.heard = False
        self.reader = ReplyReader()
        self._errors = errors
        self._limit = limit
        self._deadlines = deadlines
        self._free = free
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._waiter: Received | SentWaiter | None = None
        self._fault: Exception | None = None  # what ended the connection
        self._writable: asyncio.Future[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._busy = self._streamed = self._direct = self._held = False
        self._calls_back = False  # the waiter is no future
        self._prefix: Prefix | None = None
        self._first = 0  # how much of _arriving has to be here
        self._arriving: ArrivingBody | None = None  # the body of an answer that need not be complete
        self._pauses = 0  # of the deadline
        self._pipe_waits = False  # for more of the request
        self._left: float | None = None  # until the deadline when it was paused

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server has accepted it."""
        self._transport = cast("asyncio.Transport", transport)
        self._turn = Turn(self._loop, self._transport, self._begin_turn)
        send_at_once(transport)
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), _INPUT)
        self.is_closing, self.poll = transport.is_closing, poll.poll

    def data_received(self, data: bytes) -> None:
        """Read an answer. Input that answers no request ends the connection."""
        if not self._busy:
            self.abort()
            return
        self.heard = True
        reader = self.reader
        reply = reader.read_whole(data)
        if reply is not None:
            self._finish(reply)
            return
        begun = reader.state is BODY
        try:
            reader.receive(data)
        except (HeadersError, BodyError) as error:
            broken = begun and isinstance(error, BodyError)
            self._fail(self._errors.broken_off() if broken else self._errors.foreign(str(error)))
        else:
            self._advance()
        if reader.pending:
            self._turn.end()
        if len(data) > COUNTED_BYTES:
            self._turn.received(len(data))

    def _begin_turn(self) -> None:
        """It is this connection's turn again."""
        if self.reader.pending:
            self.data_received(b"")

    def eof_received(self) -> None:
        """The server has closed its side, which may end an answer."""
        begun = self.reader.state is BODY
        if self._busy and self.reader.end():
            self._advance()
        elif begun:
            self._fault = self._errors.broken_off()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the current request."""
        if self._fault is None and not (self._busy and self.reader.complete):
            begun = self.reader.state is BODY
            self._fault = self._errors.broken_off() if begun else self._errors.unanswered()
        if self._sending is not None:
            self._sending.cancel()
        self.resume_writing()
        self._deliver()
        self._break_off()
        self._lost(self)

    def pause_writing(self) -> None:
        """The server reads more slowly than we write."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """It has read what was written."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def body_buffer(self) -> memoryview:
        """See ``BodyOwner``."""
        return self.reader.body_buffer()

    def body_received(self, count: int) -> None:
        """See ``BodyOwner``."""
        self.reader.body_filled(count)
        self._turn.received(count)
        if self.reader.complete or self._arriving is not None:
            self._advance()

    # called by the client

    @property
    def usable(self) -> bool:
        """Whether a request may go out: nothing has arrived since the last answer, not even an end. The event
        loop may be about to read what the socket has, however recent that answer is."""
        return not self.is_closing() and not self.poll(0)

    def request(
        self,
        head: bytes,
        parts: Sequence[Buffer],
        size: int,
        *,
        bodiless: bool,
        streamed: bool,
        prefix: Prefix | None = None,
    ) -> Received:
        """Send a request with a body of ``parts``, ``size`` bytes together. ``prefix`` is that of an
        ``HttpCall``. The future raises ``InferenceError``."""
        self._busy, self.heard, self._streamed, self._prefix = True, False, streamed, prefix
        self._calls_back = False
        self.reader.begin(
            bodiless=bodiless, streamed=streamed, arriving=None if prefix is None else self._begin_arriving
        )
        if size <= JOINED_BYTES:
            self._transport.write(b"".join((head, *parts)) if size else head)
        else:
            write_pieces(self._transport, (head, *map(flat, parts)), len(head) + size)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def send(
        self, head: bytes, body: Buffer, prefix: Prefix | None, deadline: float, waiter: SentWaiter
    ) -> None:
        """Send a request whose answer ``waiter`` gets; ``prefix`` is that of an ``HttpCall``."""
        self.deadline = deadline
        self._busy, self.heard, self._streamed, self._prefix = True, False, False, prefix
        self._calls_back = True
        self.reader.begin(False, False, None if prefix is None else self._begin_arriving)
        if len(body) <= JOINED_BYTES:
            self._transport.write(head + body)
        else:
            write_pieces(self._transport, (head, body), len(head) + len(body))
        self._waiter = waiter

    def more(self) -> Received:
        """The next piece of a streamed answer."""
        self._waiter = waiter = self._loop.create_future()
        self._deliver()
        return waiter

    def send_rest(self, rest: AsyncIterator[Buffer], *, chunked: bool) -> None:
        """Send the rest of a body as it comes, no faster than the server reads."""
        self._sending = self._loop.create_task(self._send_rest(rest, chunked))

    def expire(self) -> None:
        """The deadline has passed. Between two pieces of a stream that is not an error yet."""
        if self._waiter is not None or self._arriving is not None:
            self._fail(self._errors.timed_out())

    def release(self, status: int) -> None:
        """The answer with this ``status`` is read. The connection closes if no other can follow, or if it
        came before the request was sent (RFC 9112, 9.5)."""
        self._busy = False
        self.reader.body = b""
        sending, self._sending = self._sending, None
        sent = not self._transport.get_write_buffer_size() and (sending is None or sending.done())
        if sent and self.reader.state is IDLE:
            self._free(self, status)
            return
        if sending is not None:
            sending.cancel()
        self.abort()

    def cancel(self, waiter: Received | SentWaiter) -> None:
        """End the request of ``waiter``, if it still runs."""
        if self._waiter is waiter:
            self._waiter = None
            self.abort()

    def abort(self) -> None:
        """Close the socket now."""
        self._transport.abort()

    # inside

    def _advance(self) -> None:
        """More of the answer has arrived."""
        reader = self.reader
        if self._streamed:
            self._deliver()
            if self._waiter is None and reader.untaken > _HELD_BYTES and not self._held:
                self._held = True
                self._turn.read(False)
        elif self._arriving is not None:
            self._advance_arriving(self._arriving)
        elif reader.complete:
            if self._direct:
                self._end_direct()
            headers = reader.headers
            self._finish(HttpReply(headers.status, headers.headers, reader.body))
        elif self._limit is not None and reader.size > self._limit:
            self._fail(self._errors.too_large(reader.size))
        else:
            self._receive_directly()

    def _finish(self, reply: HttpReply) -> None:
        """The answer is complete."""
        if self._limit is not None and len(reply.body) > self._limit:
            self._fail(self._errors.too_large(len(reply.body)))
            return
        waiter = self._waiter
        # a callback has its outcome only from here
        if waiter is None or not (self._calls_back or not waiter.done()):
            self.release(reply.status)
            return
        self._waiter = None
        reader = self.reader
        unsent = self._sending is not None or self._transport.get_write_buffer_size()
        # first: the waiter may send its next request
        if reader.state is IDLE and not unsent:  # release, inlined
            self._busy, reader.body = False, b""
            self._free(self, reply.status)
        else:
            self.release(reply.status)
        waiter.set_result(reply)

    def _receive_directly(self) -> None:
        if self.reader.missing >= DIRECT_BYTES and not self._direct:
            self._direct = True
            self._transport.set_protocol(DirectBody(self))

    def _end_direct(self) -> None:
        self._direct = False
        self._transport.set_protocol(self)

    # an answer that is read while it arrives

    def _begin_arriving(self, headers: ReplyHeaders) -> ArrivingBody | None:
        """Where to receive the large body of an answer; None if it has to be complete."""
        if headers.status != 200 or "content-encoding" in headers.headers or self._prefix is None:
            return None
        first = self._prefix(headers.headers)
        if first is None or first >= headers.length or (self._limit or headers.length) < headers.length:
            return None
        self._first, self._arriving = first, ArrivingBody(headers.length, self._flow, self._loop, 0, self)
        return self._arriving

    @property
    def transport(self) -> asyncio.Transport:
        """See ``BodySource``."""
        return self._transport

    def lend(self, lent: bool) -> None:
        """See ``BodySource``."""
        self._turn.lend(lent)

    def body_piped(self, count: int) -> None:
        """See ``BodySource``."""
        self.reader.body_filled(count)
        self._advance()

    def _advance_arriving(self, body: ArrivingBody) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done() and body.size >= self._first:
            self._waiter = None
            body.on_end(self._end_arriving)
            headers = self.reader.headers
            waiter.set_result(HttpReply(headers.status, headers.headers, body.split(self._first), body))
        if not self.reader.complete:
            self._receive_directly()
            return
        if self._direct:
            self._end_direct()
        self._arriving = None
        self.release(self.reader.headers.status)

    def _end_arriving(self, fault: BaseException | None) -> None:
        if fault is not None:  # for example, the caller has disconnected
            self.abort()

    def _break_off(self) -> None:
        if self._arriving is not None and self._fault is not None:
            self._arriving.fail(self._fault)

    def _flow(self, read: bool) -> None:
        self._turn.read(read)
        if read:
            self._resume_deadline()
        else:
            self._pause_deadline()

    def _pause_deadline(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and self.deadline is not None:
            self._left, self.deadline = self.deadline - monotonic(), None

    def _resume_deadline(self) -> None:
        self._pauses -= 1
        if not self._pauses and self._left is not None:
            self.deadline, self._left = monotonic() + self._left, None
            self._deadlines.add(self.deadline)

    def _deliver(self) -> None:
        """Give the waiter what has arrived, or the fault."""
        waiter, reader = self._waiter, self.reader
        if waiter is None or waiter.done():
            return
        body: Buffer = reader.take() if self._streamed else reader.body
        if self._held:
            self._held = False
            self._turn.read(True)
        if self._fault is not None and not (self._streamed and body):
            self._waiter = None
            waiter.set_exception(self._fault)
        elif body or reader.complete:
            self._waiter = None
            headers = reader.headers
            waiter.set_result(HttpReply(headers.status, headers.headers, body))

    def _fail(self, fault: Exception) -> None:
        """End the connection, and the request with ``fault``."""
        self._fault = fault
        self._deliver()
        self._break_off()
        self.abort()

    async def _send_rest(self, rest: AsyncIterator[Buffer], chunked: bool) -> None:
        body = rest if isinstance(rest, ArrivingBody) and not chunked else None
        try:
            if body is not None and body.pipeable and not await self._pipe(body):
                return
            while (piece := await self._next(rest)) is not None:
                if self._writable is not None:
                    await self._writable
                if size := size_of(piece):
                    pieces = chunk(piece, size) if chunked else (flat(piece),)
                    write_pieces(self._transport, pieces, size)
                if body is not None and body.pipeable and not await self._pipe(body):
                    return
            if chunked:
                self._transport.write(b"0\r\n\r\n")
        except Exception as fault:
            self._fail(fault)

    async def _pipe(self, body: ArrivingBody) -> bool:
        """Send more of ``body`` through a pipe. Returns whether the server takes more: else its answer says
        why, or the end of its connection."""
        self._pause_deadline()
        self._pipe_waits = True
        try:
            await body.pipe_to(self._transport, self._pipe_blocked)
        except OSError as fault:
            if not isinstance(fault, ConnectionError):
                raise self._errors.failed(f"takes no more of the request: {fault.strerror}") from fault
            return False
        finally:
            if self._pipe_waits:
                self._resume_deadline()
        return True

    def _pipe_blocked(self, pipe: KernelPipe, blocked: bool) -> None:
        self._pipe_waits = not blocked
        (self._resume_deadline if blocked else self._pause_deadline)()

    async def _next(self, rest: AsyncIterator[Buffer]) -> Buffer | None:
        self._pause_deadline()
        try:
            return await anext(rest, None)
        finally:
            self._resume_deadline()
