"""A call on a gRPC listener: messages in, a handler's answers out, on one stream of HTTP/2.

A call begins as soon as there is something to serve, as with grpcio: a unary one with its first message (what
comes after that is passed over), a stream with its head. Whatever ends it, the handler's task ends too, and
the call counts until then.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from interlingua.protocols.transport.grpc.head import ANSWER_HEAD, OK, Head, trailers, trailers_only
from interlingua.protocols.transport.grpc.messages import (
    PREFIX,
    PREFIX_BYTES,
    MessageCutter,
    RefusedMessageError,
)
from interlingua.protocols.transport.grpc.status import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    UNAVAILABLE,
    UNIMPLEMENTED,
    fitting,
    unforeseen,
)
from interlingua.protocols.transport.h2.connection import Connection
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcHandler, GrpcRequest, Headers
from interlingua.schemas import Context

_COPIED_BYTES = 1 << 14
"""Up to this size a message that came whole is copied out of what was received; a larger one is a view."""

_HELD_BYTES = 1 << 20
"""How much of a stream may have arrived before it is taken; the client is given no more room then."""

_WAITING_BYTES = 1 << 18
"""How much of the answers of a stream may wait to be sent before the handler waits too."""


class Caller(Protocol):
    """Who calls: a connection, and what its calls have in common."""

    handler: GrpcHandler
    loop: asyncio.AbstractEventLoop
    peer: str
    max_request_bytes: int | None
    max_response_bytes: int | None

    def began(self, call: Call) -> None:
        """A call is at work."""

    def ended(self, call: Call) -> None:
        """It is no more."""


class Call(Stream):
    """What unary calls and streams have in common."""

    __slots__ = (
        "_caller",
        "_counted",
        "_cutter",
        "_head",
        "_over",
        "_started",
        "_task",
        "_working",
        "context",
        "deadline",
    )

    def __init__(
        self, caller: Caller, connection: Connection[Head | None], number: int, head: Head, ended: bool
    ) -> None:
        super().__init__(connection, number, ended)
        self._caller = caller
        self._head = head
        self._cutter: MessageCutter | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = self._working = self._over = self._counted = False
        metadata = head.metadata
        self.deadline = None if head.timeout is None else time.monotonic() + head.timeout
        self.context = Context(
            deadline=self.deadline,
            traceparent=metadata.get("traceparent", ""),
            tracestate=metadata.get("tracestate", ""),
            peer=caller.peer,
            headers=metadata,
        )
        caller.began(self)

    def abandoned(self) -> None:
        """As a stream has it."""
        self._over = True
        if self._counted:
            return
        self.context.cancel.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._working:
            self._counted = True
            self.connection.given_up += 1
        else:
            self._caller.ended(self)

    def drained(self) -> None:
        """As a stream has it."""
        if self.told_all and not self._working:
            self._caller.ended(self)

    def expire(self) -> None:
        """The deadline has passed."""
        self.end(GrpcAnswer(code=DEADLINE_EXCEEDED, details="Deadline Exceeded"))

    def cut(self) -> None:
        """The server waits no longer."""
        self.end(GrpcAnswer(code=UNAVAILABLE, details="the server is stopping"))

    def end(self, answer: GrpcAnswer) -> None:
        """End the call with an answer of the transport's own, whatever is under way."""
        if not self.told_all:
            self.connection.send_end(self, self._ending(answer))
        self.abandoned()

    def _ending(self, answer: GrpcAnswer) -> bytes:
        """The block of headers that ends the call."""
        return trailers(answer) if self._started else trailers_only(answer)

    def _messages_in(self, data: bytes, start: int, stop: int) -> Iterable[Buffer]:
        """The messages that ``data[start:stop]`` completes. Raises ``RefusedMessageError`` between them."""
        limit = self._caller.max_request_bytes
        if stop - start >= PREFIX_BYTES and not self._halfway:
            # nearly every message comes by itself in one frame
            compressed, size = PREFIX.unpack_from(data, start)
            begin = start + PREFIX_BYTES
            if size == stop - begin and not compressed and (limit is None or size <= limit):
                return (data[begin:stop] if size <= _COPIED_BYTES else memoryview(data)[begin:stop],)
        if self._cutter is None:
            self._cutter = MessageCutter(self._head.coding, limit)
        return self._cutter.cut(data, start, stop)

    @property
    def _halfway(self) -> bool:
        """Whether a message has begun that has not ended."""
        return self._cutter is not None and self._cutter.halfway

    def _done(self) -> None:
        """The task is at its end."""
        self._working = False
        if self._counted:
            self.connection.given_up -= 1
        if self.told_all:
            self._caller.ended(self)


class UnaryCall(Call):
    """One message, one answer."""

    __slots__ = ()

    def received(self, data: bytes, start: int, stop: int, ended: bool) -> None:
        """As a stream has it."""
        if self._task is not None:
            return
        try:
            for message in self._messages_in(data, start, stop):
                request = GrpcRequest(self._head.method, message, self._head.metadata, self.context)
                self._task = self._caller.loop.create_task(self._run(request))
                return
        except RefusedMessageError as refused:
            self.end(refused.answer)
            return
        if ended and self._halfway:
            self.end(GrpcAnswer(code=INTERNAL, details="the message of the call is cut short"))
        elif ended:
            self.end(GrpcAnswer(code=UNIMPLEMENTED, details="a unary call has one message, not none"))

    async def _run(self, request: GrpcRequest) -> None:
        self._working = True
        try:
            answer = await self._caller.handler.serve(request)
        except Exception:
            answer = unforeseen(request.method)
        except BaseException:
            answer = GrpcAnswer(code=CANCELLED)  # it is not sent where the client has gone
            raise
        finally:
            if not self._over:
                self._answer(answer)
            self._done()

    def _answer(self, answer: GrpcAnswer) -> None:
        self._over = True
        answer = fitting(answer, self._caller.max_response_bytes)
        if answer.code:
            self.connection.send_end(self, self._ending(answer))
            return
        self._started = True
        message = answer.message
        size = len(message)
        tail = trailers(answer) if answer.trailing else OK
        self.connection.send_whole(
            self, ANSWER_HEAD, (PREFIX.pack(0, size), _lasting(message)), size + PREFIX_BYTES, tail
        )


class StreamCall(Call):
    """Messages both ways: an ``AsyncIterator`` over those that come."""

    __slots__ = ("_fault", "_giver", "_held", "_messages", "_taker")

    def __init__(
        self, caller: Caller, connection: Connection[Head | None], number: int, head: Head, ended: bool
    ) -> None:
        super().__init__(caller, connection, number, head, ended)
        self._messages: deque[Buffer] = deque()
        self._held = 0
        self._fault: RefusedMessageError | None = None
        self._taker: asyncio.Future[None] | None = None
        self._giver: asyncio.Future[None] | None = None
        self._task = caller.loop.create_task(
            self._run(GrpcRequest(head.method, b"", head.metadata, self.context))
        )

    def received(self, data: bytes, start: int, stop: int, ended: bool) -> None:
        """As a stream has it."""
        if self._fault is not None:
            return
        try:
            for message in self._messages_in(data, start, stop):
                self._messages.append(message)
                self._held += len(message) + PREFIX_BYTES
            if ended and self._halfway:
                details = "the last message of the stream is cut short"
                self._fault = RefusedMessageError(GrpcAnswer(code=INTERNAL, details=details))
        except RefusedMessageError as refused:
            self._fault = refused
            self.holding = True
        if self._held > _HELD_BYTES:
            self.holding = True
        _wake(self._taker)

    def drained(self) -> None:
        """As a stream has it."""
        super().drained()
        _wake(self._giver)

    def __aiter__(self) -> AsyncIterator[Buffer]:
        return self

    async def __anext__(self) -> Buffer:
        while not self._messages:
            if self._fault is not None:
                raise self._fault
            if self.heard_all:
                raise StopAsyncIteration
            self._taker = self._caller.loop.create_future()
            await self._taker
        message = self._messages.popleft()
        self._held -= len(message) + PREFIX_BYTES
        if self.holding and self._held <= _HELD_BYTES // 2 and self._fault is None:
            self.holding = False
            self.connection.credit(self)
        return message

    async def _run(self, request: GrpcRequest) -> None:
        self._working = True
        try:
            end = await self._give(self._caller.handler.stream(request, self))
        except RefusedMessageError as refused:
            end = refused.answer
        except Exception:
            end = unforeseen(request.method)
        except BaseException:
            end = GrpcAnswer(code=CANCELLED)
            raise
        finally:
            if not self._over:
                self._over = True
                self.connection.send(self, (), self._ending(end))
            self._done()

    async def _give(self, answers: AsyncIterator[GrpcAnswer]) -> GrpcAnswer:
        """Send the answers as they come; the one that ends the call."""
        trailing: Headers = ()
        try:
            async for answer in answers:
                if self._over:
                    break
                answer = fitting(answer, self._caller.max_response_bytes)
                if answer.code:
                    return answer
                trailing = answer.trailing or trailing
                self._start()
                message = answer.message
                self.connection.send(self, (PREFIX.pack(0, len(message)), _lasting(message)))
                if self.waiting > _WAITING_BYTES:
                    self._giver = self._caller.loop.create_future()
                    await self._giver
        finally:
            # what the answers still do must not outlive the call
            if (close := getattr(answers, "aclose", None)) is not None:
                await close()
        self._start()
        return GrpcAnswer(trailing=trailing)

    def _start(self) -> None:
        if not self._started and not self._over:
            self._started = True
            self.connection.send_head(self, ANSWER_HEAD)


def _lasting(message: Buffer) -> Buffer:
    """``message`` as bytes that stay as they are, however long it has to wait."""
    return message if isinstance(message, bytes) else bytes(message)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
