"""A gRPC call to an upstream, on one HTTP/2 stream: a request out, messages and a status in.

A status of the server's own is an answer; everything else that ends a call is an error ("PROTOCOL-HTTP2").
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from interlingua.protocols.plans import SentWaiter
from interlingua.protocols.templates import LONGEST
from interlingua.protocols.transport.deadlines import Deadlines
from interlingua.protocols.transport.grpc.client_errors import ClientErrors
from interlingua.protocols.transport.grpc.client_headers import AnswerHeaders, of_reset
from interlingua.protocols.transport.grpc.messages import (
    PREFIX,
    PREFIX_BYTES,
    MessageError,
    MessageStream,
    prefixed,
)
from interlingua.protocols.transport.grpc.status import INTERNAL, RESOURCE_EXHAUSTED, UNKNOWN
from interlingua.protocols.transport.h2.client import STREAM_WINDOW, ClientConnection
from interlingua.protocols.transport.h2.connection import H2Connection
from interlingua.protocols.transport.h2.flood import BURST, SMALL_BYTES
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.h2.passthrough import BEGIN_BYTES, PASSED_BYTES, FramePassthrough
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.memory import unfilled
from interlingua.protocols.transport.turns import TURN_MESSAGES, next_turn
from interlingua.protocols.wire import ArrivingMessage, Buffer, GrpcAnswer

_HELD_BYTES = 1 << 20
"""How much of a stream's answers is buffered before its flow-control window is held."""

_WAITING_BYTES = 1 << 18
"""How much of a stream's messages may be queued before the sender waits."""

_CUT_SHORT = "the last message of the answer is cut short"


class UnprocessedError(Exception):
    """The server has not processed the call and will not: it may be made again (RFC 9113, 8.7)."""


class ClientHost(Protocol):
    """The connection of a call: what its calls share. ``broken`` is why it is lost."""

    connection: ClientConnection[AnswerHeaders, ClientCall]
    loop: asyncio.AbstractEventLoop
    errors: ClientErrors
    limit: int | None
    heard: int
    deadlines: Deadlines

    def lost(self) -> Exception:
        """The error of a call whose connection is lost."""

    def expired(self, number: int, heard: int) -> None:
        """The call on stream ``number`` has reached its deadline; ``heard`` is as it was when the call
        began."""


class ClientCall(MessageStream):
    """The common part of unary and streaming calls. ``outcome`` is the answer, or the error, that ended the
    call. ``_heard`` is what the connection had received before the call."""

    __slots__ = ("_head", "_heard", "_host", "deadline", "outcome")

    def __init__(self, host: ClientHost, deadline: float | None) -> None:
        super().__init__(0, 0, False)
        self._host = host
        self._heard = host.heard
        self._head: AnswerHeaders | None = None
        self.deadline = deadline
        self.outcome: GrpcAnswer | Exception | None = None

    # called by the client

    def send(self, message: Buffer, *, ended: bool) -> None:
        """Send a message; ``ended``: it is the last one."""
        self._host.connection.sender.send(self, prefixed(message)[1], ended=ended)

    def cancel(self) -> None:
        """End the call, if it has not ended: its answer is no longer wanted."""
        self._host.connection.cancel(self)

    def fail(self, error: Exception) -> None:
        """End the call, if it has not ended, with ``error``."""
        self._host.connection.cancel(self)
        self._finish(error)

    def ended(self) -> GrpcAnswer:
        """The answer that ended the call. Raises the error that did."""
        if isinstance(self.outcome, GrpcAnswer):
            return self.outcome
        raise self.outcome or UnprocessedError

    # called by the connection

    def expire(self) -> None:
        """End the call: its deadline has passed."""
        self._host.expired(self.id, self._heard)
        self.fail(self._host.errors.timed_out())

    def headers_received(self, headers: AnswerHeaders, ended: bool) -> None:
        """See ``Stream``."""
        if headers.usual and not ended and self._head is None:
            self._head = headers
        elif headers.status == 0 and ended and self.sink is None and not headers.malformed:
            self._end(self._succeeded())
        elif headers.malformed:
            self._end(GrpcAnswer(code=INTERNAL, details=f"the answer is malformed: {headers.malformed}"))
        elif ended:
            self._trailers_received(headers)
        elif headers.interim:
            pass
        elif self._head is not None:
            self._end(GrpcAnswer(code=INTERNAL, details="the answer is malformed: it has headers twice"))
        elif (answer := headers.refusal()) is not None:
            self._end(answer)

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """See ``Stream``."""
        head = self._head
        if head is None:
            self._end(GrpcAnswer(code=INTERNAL, details="the answer is malformed: data before headers"))
            return
        passes = self.passthrough is not None
        if passes or (stop - start >= BEGIN_BYTES and self._begin_passthrough(data, start, stop)):
            self._forward(data, start, stop, ended)
            return
        try:
            for message in self.messages_in(data, start, stop, head.coding, self._host.limit, unfilled):
                self._message_received(message)
        except MessageError as error:
            if error.code == RESOURCE_EXHAUSTED:
                self.fail(self._host.errors.too_large(error.details))
            else:
                self._end(GrpcAnswer(code=error.code, details=error.details))
            return
        if ended:
            self._end(GrpcAnswer(code=UNKNOWN, details="the answer ended without a status"))

    def on_reset(self, code: int) -> None:
        """See ``Stream``."""
        if code == Code.REFUSED_STREAM:
            self.on_unprocessed()
        else:
            self._finish(of_reset(code))

    def on_lost(self) -> None:
        """See ``Stream``."""
        self._finish(self._host.lost())

    def on_unprocessed(self) -> None:
        """See ``Stream``. A call whose answer has begun was processed."""
        self._finish(UnprocessedError() if self._head is None else of_reset(Code.REFUSED_STREAM))

    def _trailers_received(self, headers: AnswerHeaders) -> None:
        if headers.status is None:
            answer = headers.refusal() if self._head is None else None
            self._end(answer or GrpcAnswer(code=UNKNOWN, details="the answer ended without a status"))
        elif headers.status:
            self._end(GrpcAnswer(code=headers.status, details=headers.details))
        elif self.sink is not None and self.partial:
            self._end(GrpcAnswer(code=INTERNAL, details=_CUT_SHORT))
        else:
            self._end(self._succeeded())

    def _begin_passthrough(self, data: Buffer, start: int, stop: int) -> bool:
        """Whether a message that begins at ``data[start:stop]`` passes on while it arrives."""
        return False

    def _forward(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        raise NotImplementedError

    def _end(self, answer: GrpcAnswer) -> None:
        self._host.connection.release(self)
        self._finish(answer)

    def _finish(self, outcome: GrpcAnswer | Exception) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._wake()

    def _message_received(self, message: Any) -> None:
        raise NotImplementedError

    def _succeeded(self) -> GrpcAnswer:
        """The answer of a call with status OK."""
        raise NotImplementedError

    def _wake(self) -> None:
        """The call has ended."""
        raise NotImplementedError


class UnaryClientCall(ClientCall):
    """One message, one answer. ``waiter`` is done when the call has ended."""

    __slots__ = ("_message", "waiter")

    def __init__(self, host: ClientHost, deadline: float | None) -> None:
        super().__init__(host, deadline)
        self._message: Any = None
        self.waiter: asyncio.Future[None] = host.loop.create_future()

    def start(self, block: bytes, message: Buffer, more: Sequence[Buffer] = ()) -> None:
        """Send the whole request; ``block`` are its headers, ``more`` continues ``message``."""
        connection = self._host.connection
        connection.open(self)
        size, pieces = prefixed(message, more)
        connection.sender.send_whole(self, block, pieces, size)

    def _message_received(self, message: Any) -> None:
        if self._message is not None:
            raise MessageError(INTERNAL, "the answer to a unary call has more than one message")
        self._message = message

    def _succeeded(self) -> GrpcAnswer:
        if self._message is None:
            return GrpcAnswer(code=INTERNAL, details="the answer to a unary call has no message")
        if self.passthrough is not None and self.passthrough.left:
            return GrpcAnswer(code=INTERNAL, details=_CUT_SHORT)
        return GrpcAnswer(self._message)

    def _wake(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)


class CallbackClientCall(UnaryClientCall):
    """A unary call whose outcome ``sent`` gets when it has ended. If its message is arriving, ``_timeout`` is
    the time for the server, in seconds, while nothing is awaited from the caller, whose own deadline is
    ``_until``."""

    __slots__ = ("_sent", "_timeout", "_until")

    def __init__(self, host: ClientHost, deadline: float | None, sent: SentWaiter) -> None:
        ClientCall.__init__(self, host, deadline)
        self._message = None
        self._sent = sent

    def open(self, block: bytes, until: float | None) -> None:
        """Send the headers of a request whose message is arriving; ``until``: the deadline of its caller."""
        connection = self._host.connection
        self._timeout = math.inf if self.deadline is None else self.deadline - time.monotonic()
        self.deadline, self._until = None, until
        connection.open(self)
        connection.sender.send_headers(self, block)

    def feeder_waits(self, waits: bool) -> None:
        """See ``Stream``."""
        if waits:
            self.deadline = None  # that of the caller ends its own call, and this one with it
            return
        deadline = time.monotonic() + self._timeout
        self.deadline = deadline if self._until is None else min(deadline, self._until)
        self._heard = self._host.heard
        self._host.deadlines.add(self.deadline)

    def fed_by(self, source: Stream, connection: H2Connection[Any, Any], size: int) -> FramePassthrough:
        """What passes the message on, of ``size`` bytes with its prefix, from ``source``, a stream of
        ``connection``."""
        self.feeder = feeder = FramePassthrough(
            source, connection, self, self._host.connection.sender, size, ends=True
        )
        return feeder

    def on_drained(self) -> None:
        """See ``Stream``."""
        if self.feeder is not None:
            self.feeder.grant()

    def _begin_passthrough(self, data: Buffer, start: int, stop: int) -> bool:
        if self.sink is not None or self._message is not None:
            return False
        compressed, size = PREFIX.unpack_from(data, start)
        limit = self._host.limit
        if compressed or not PASSED_BYTES < size <= STREAM_WINDOW or (limit is not None and size > limit):
            return False
        begin = start + PREFIX_BYTES
        message = ArrivingMessage(bytes(data[begin : min(stop, begin + LONGEST)]), size)
        caller = self._sent.answer_begins(message)
        if caller is None:
            return False
        self._message = message
        self.passthrough = caller.fed_by(self, self._host.connection, PREFIX_BYTES + size)
        return True

    def _forward(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        passthrough = self.passthrough
        if passthrough is not None and passthrough.take(data, start, stop):
            details = "the answer to a unary call has more than one message"
            self._end(GrpcAnswer(code=INTERNAL, details=details))
        elif ended:
            self._end(GrpcAnswer(code=UNKNOWN, details="the answer ended without a status"))

    def _end(self, answer: GrpcAnswer) -> None:
        self._host.connection.release(self)
        if self.outcome is None:  # _finish and _wake, inlined
            self.outcome = answer
            self._sent.set_result(answer)

    def _wake(self) -> None:
        outcome = self.outcome
        if isinstance(outcome, GrpcAnswer):
            self._sent.set_result(outcome)
        elif outcome is not None:
            self._sent.set_exception(outcome)


class StreamClientCall(ClientCall):
    """Messages both ways: an ``AsyncIterator`` over those received, to the end of the call."""

    __slots__ = ("_held", "_message_waiter", "_messages", "_send_waiter", "_taken")

    def __init__(self, host: ClientHost, deadline: float | None) -> None:
        super().__init__(host, deadline)
        self._messages: deque[Any] = deque()
        self._held = self._taken = 0
        self._message_waiter: asyncio.Future[None] | None = None
        self._send_waiter: asyncio.Future[None] | None = None

    def start(self, block: bytes) -> None:
        """Send the headers of the request."""
        connection = self._host.connection
        connection.open(self)
        connection.sender.send_headers(self, block)

    async def send_all(self, messages: AsyncIterator[Buffer]) -> None:
        """Send ``messages`` as they come, no faster than the server takes them, and end the request. What
        they raise ends the call."""
        try:
            async for message in messages:
                if self.closed:
                    return
                self.send(message, ended=False)
                while self.queued > _WAITING_BYTES:
                    self._send_waiter = self._host.loop.create_future()
                    await self._send_waiter
        except Exception as error:
            self.fail(error)
        if not self.closed:
            self._host.connection.sender.send(self, (), ended=True)

    def on_drained(self) -> None:
        """See ``Stream``."""
        _set(self._send_waiter)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while not self._messages:
            if self.outcome is not None:
                raise StopAsyncIteration
            self._message_waiter = self._host.loop.create_future()
            await self._message_waiter
            self._taken = 0
        self._taken += 1
        if self._taken > TURN_MESSAGES:
            self._taken = 1
            await next_turn(self._host.loop)
        message = self._messages.popleft()
        self._held -= len(message) + PREFIX_BYTES
        if self.window_held and self._held <= _HELD_BYTES // 2:
            self.window_held = False
            self._host.connection.replenish(self)
        return message

    def _message_received(self, message: Any) -> None:
        self._messages.append(message)
        connection = self._host.connection
        connection.frames.extra += 1
        if len(message) < SMALL_BYTES:
            connection.guard.tokens = min(BURST, connection.guard.tokens + 1)
        self._held += len(message) + PREFIX_BYTES
        if self._held > _HELD_BYTES:
            self.window_held = True
        _set(self._message_waiter)

    def _succeeded(self) -> GrpcAnswer:
        return GrpcAnswer()

    def _wake(self) -> None:
        _set(self._message_waiter)
        _set(self._send_waiter)


def _set(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
