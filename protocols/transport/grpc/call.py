"""A call on a gRPC listener: messages in, a handler's answers out, on one HTTP/2 stream.

As with grpcio, the handler of a unary call starts with its first message (later ones are ignored), that of a
stream with its headers. However a call ends, its handler's task is cancelled, and the call counts as running
until the task is done.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Protocol, cast

from interlingua.protocols.transport.grpc.headers import (
    ANSWER_HEADERS,
    OK,
    CallHeaders,
    trailers,
    trailers_only,
)
from interlingua.protocols.transport.grpc.messages import (
    PREFIX_BYTES,
    CompressedMessage,
    MessageError,
    MessageStream,
    prefixed,
)
from interlingua.protocols.transport.grpc.status import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    body_slow,
    body_stalled,
    fitting,
    too_large,
    unforeseen,
)
from interlingua.protocols.transport.h2.flood import SMALL_BYTES
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.load import SMALL_BYTES as SMALL_BODY_BYTES
from interlingua.protocols.transport.load import BodyLoad, ListenerLoad, RefusedRequest
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.transport.turns import TURN_MESSAGES, next_turn
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcHandler, GrpcRequest, Headers
from interlingua.schemas import Context
from interlingua.schemas.offload import CLIENT, DecodingLimits

_HELD_BYTES = 1 << 17
"""How much of a stream's messages is buffered before its flow-control window is held."""

_WAITING_BYTES = 1 << 18
"""How much of a stream's answers may be queued before the handler waits."""


class CallHost(Protocol):
    """The connection of a call: what its calls share."""

    handler: GrpcHandler
    load: ListenerLoad
    loop: asyncio.AbstractEventLoop
    peer: str
    identity: str | None
    max_request_bytes: int | None
    max_response_bytes: int | None
    limits: DecodingLimits

    def call_began(self, call: GrpcCall) -> None:
        """Count a call as running."""

    def call_ended(self, call: GrpcCall) -> None:
        """Count it no longer."""


class GrpcCall(MessageStream):
    """The common part of unary and streaming calls. ``_over``: the answer is complete, or no client waits for
    it. ``_reset_at_work``: the connection counts the call among those reset whose task still runs."""

    __slots__ = (
        "_headers",
        "_host",
        "_over",
        "_reset_at_work",
        "_started",
        "_task",
        "_working",
        "connection",
        "context",
        "deadline",
        "held",
    )

    def __init__(
        self,
        host: CallHost,
        connection: ServerConnection[CallHeaders | None],
        number: int,
        headers: CallHeaders,
        ended: bool,
    ) -> None:
        super().__init__(number, connection.sender.initial_window, ended)
        self.connection = connection
        self.body_left = headers.length
        self._host = host
        self._headers = headers
        self._task: asyncio.Task[None] | None = None
        self.held: BodyLoad | None = None
        self._started = self._working = self._over = self._reset_at_work = False
        metadata = headers.metadata
        self.deadline = None if headers.timeout is None else time.monotonic() + headers.timeout
        self.context = Context(
            deadline=self.deadline,
            traceparent=metadata.get("traceparent", ""),
            tracestate=metadata.get("tracestate", ""),
            peer=host.peer,
            headers=metadata,
            identity=host.identity,
            arrived=0 if ended else time.monotonic_ns(),
            reports_write=True,
        )
        host.call_began(self)

    def on_reset(self, code: int) -> None:
        """See ``Stream``."""
        self._over = True
        if self.loan or self.window_held:
            self.connection.message_ended(self)
        self.sink = None
        if self._reset_at_work:
            return
        self.context.cancel.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._working:
            self._reset_at_work = True
            self.connection.reset_at_work += 1
        else:
            self._task = None
            self._host.call_ended(self)

    def on_drained(self) -> None:
        """See ``Stream``."""
        if self.half_closed_local and not self._working:
            self._host.call_ended(self)

    @property
    def awaits_body(self) -> bool:
        """Whether the client has begun a message and may send the rest of it."""
        return self.partial and not (self.half_closed_remote or self.window_held)

    def end_body(self, slow: bool, timeouts: Timeouts) -> None:
        """The client has stopped sending a message, or sends it too slowly."""
        self.end(body_slow(timeouts.min_bytes_per_sec) if slow else body_stalled(timeouts.body_secs))

    def expire(self) -> None:
        """End the call: its deadline has passed."""
        self.end(GrpcAnswer(code=DEADLINE_EXCEEDED, details="Deadline Exceeded"))

    def cut(self) -> None:
        """End the call: the server stops."""
        self.end(GrpcAnswer(code=UNAVAILABLE, details="the server is stopping"))

    def end(self, answer: GrpcAnswer) -> None:
        """End the call with a status of the transport's own."""
        if not self.half_closed_local:
            self.connection.sender.send_end(self, self._ending(answer))
        self.on_reset(Code.CANCEL)

    def _ending(self, answer: GrpcAnswer) -> bytes:
        """The field block that ends the call."""
        return trailers(answer) if self._started else trailers_only(answer)

    def _hold(self, size: int) -> bool:
        """Count ``size`` bytes of messages that are here. Whether the call may go on."""
        if self.held is None:
            self.held = BodyLoad(self._host.load)
        error = self.held.grow(size)
        if error is not None:
            self.end(GrpcAnswer(code=RESOURCE_EXHAUSTED, details=error.message))
        return error is None

    def _count(self, size: int) -> None:
        """The same, for the task of the call. Raises ``MessageError``."""
        if self.held is None:
            self.held = BodyLoad(self._host.load)
        error = self.held.grow(size)
        if error is not None:
            raise MessageError(RESOURCE_EXHAUSTED, error.message, fault=error)

    def _refusal(self, error: MessageError) -> GrpcAnswer:
        """What ends the call if a message cannot be taken."""
        limit = self._host.max_request_bytes
        if error.code != RESOURCE_EXHAUSTED or error.fault is not None or limit is None:
            return GrpcAnswer(code=error.code, details=error.details)
        if error.size is not None:
            return too_large("request", error.size, "max_request_bytes", limit)
        details = (
            f"the request has more bytes when decompressed than the {limit} that max_request_bytes of this "
            "listener allows"
        )
        return GrpcAnswer(code=RESOURCE_EXHAUSTED, details=details)

    def _done(self) -> None:
        """The task is done."""
        # if it was cancelled it refers to its frames: a cycle would keep the memory of the message
        self._task = None
        self._working = False
        if self.loan:
            self.connection.message_ended(self)
        if self._reset_at_work:
            self.connection.reset_at_work -= 1
        if self.half_closed_local:
            self._host.call_ended(self)


class UnaryCall(GrpcCall):
    """One message, one answer."""

    __slots__ = ()

    @property
    def awaits_body(self) -> bool:
        """See ``GrpcCall``: a unary call is its message."""
        return self._task is None and not (self._over or self.half_closed_remote or self.window_held)

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """See ``Stream``."""
        if self._task is not None or self._over:
            return
        try:
            coding, limit = self._headers.coding, self._host.max_request_bytes
            for message in self.messages_in(data, start, stop, coding, limit, self._host.load.allocate):
                size = len(message)
                if (size > SMALL_BODY_BYTES or self.held is not None) and not self._hold(size):
                    return
                request = GrpcRequest(self._headers.method, message, self._headers.metadata, self.context)
                self._task = self._host.loop.create_task(self._run(request))
                if self.loan or self.window_held:
                    self.connection.message_ended(self)
                return
        except MessageError as error:
            self._refuse(error)
            return
        if self.sink is not None and not self._hold(self.sink.filled):
            return
        if ended and self.partial:
            self.end(GrpcAnswer(code=INTERNAL, details="the message of the call is cut short"))
        elif ended:
            self.end(GrpcAnswer(code=UNIMPLEMENTED, details="a unary call has one message, not none"))

    def _refuse(self, error: MessageError) -> None:
        """End the call, whose message cannot be taken."""
        answer = self._refusal(error)
        status = "RESOURCE_EXHAUSTED" if answer.code == RESOURCE_EXHAUSTED else "INTERNAL"
        host, method = self._host, self._headers.method
        host.load.record(RefusedRequest("grpc", method, host.peer, status, error.error(), error.size or 0))
        self.end(answer)

    async def _run(self, request: GrpcRequest) -> None:
        self._working = True
        try:
            if isinstance(request.message, CompressedMessage):
                size = len(request.message)
                CLIENT.set(self._host.peer)
                request.message = await request.message.inflated(self._host.limits)
                self._count(size + len(request.message))
            answer = await self._host.handler.serve(request)
        except MessageError as error:
            answer = self._refusal(error)
        except Exception:
            answer = unforeseen(request.method)
        except BaseException:
            answer = GrpcAnswer(code=CANCELLED)  # not sent if the client is gone
            raise
        finally:
            if not self._over:
                self._answer(answer)
            self._done()

    def _answer(self, answer: GrpcAnswer) -> None:
        self._over = True
        if not answer.code:
            size, pieces = prefixed(answer.message, answer.parts)
            limit = self._host.max_response_bytes
            if limit is None or size - PREFIX_BYTES <= limit:
                self._started = True
                tail = trailers(answer) if answer.trailing else OK
                self.connection.sender.send_whole(self, ANSWER_HEADERS, pieces, size, tail)
                return
            answer = fitting(answer, limit)
        self.connection.sender.send_end(self, self._ending(answer))


class StreamCall(GrpcCall):
    """Messages both ways: an ``AsyncIterator`` over those received."""

    __slots__ = ("_fault", "_held", "_message_waiter", "_messages", "_send_waiter", "_taken")

    def __init__(
        self,
        host: CallHost,
        connection: ServerConnection[CallHeaders | None],
        number: int,
        headers: CallHeaders,
        ended: bool,
    ) -> None:
        super().__init__(host, connection, number, headers, ended)
        self._messages: deque[Any] = deque()
        self._held = self._taken = 0
        self._fault: MessageError | None = None
        self._message_waiter: asyncio.Future[None] | None = None
        self._send_waiter: asyncio.Future[None] | None = None
        self._task = host.loop.create_task(
            self._run(GrpcRequest(headers.method, b"", headers.metadata, self.context))
        )

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """See ``Stream``."""
        if self._fault is not None:
            return
        guard, before, empty = self.connection.guard, len(self._messages), 0
        try:
            coding, limit = self._headers.coding, self._host.max_request_bytes
            for message in self.messages_in(data, start, stop, coding, limit, self._host.load.allocate):
                size = len(message)
                self._messages.append(message)
                self._held += size + PREFIX_BYTES
                empty += not size
            count = len(self._messages) - before
            if count and self.loan:
                self.connection.message_ended(self)
            self.connection.frames.extra += count
            if empty:
                guard.idle_frame(empty)
            elif count and stop - start < SMALL_BYTES:  # the frame has cost as much
                guard.tokens += 1
            if ended and self.partial:
                self._fault = MessageError(INTERNAL, "the last message of the stream is cut short")
        except MessageError as error:
            self._fault = error
            self.window_held = True
        if self._held > _HELD_BYTES:
            self.window_held = True
        partial = 0 if self.sink is None else self.sink.filled
        if (partial or self._held > SMALL_BODY_BYTES) and not self._hold(partial + self._held):
            return
        _wake(self._message_waiter)

    def on_drained(self) -> None:
        """See ``Stream``."""
        super().on_drained()
        _wake(self._send_waiter)

    def __aiter__(self) -> AsyncIterator[Buffer]:
        return self

    async def __anext__(self) -> Buffer:
        while not self._messages:
            if self._fault is not None:
                raise self._fault
            if self.half_closed_remote:
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
        if self.held is not None:  # the handler counts messages at work
            self.held.grow(min(self.held.size, self._held + (0 if self.sink is None else self.sink.filled)))
        if self.window_held and self._held <= _HELD_BYTES // 2 and self._fault is None:
            self.window_held = False
            self.connection.replenish(self)
        if type(message) is CompressedMessage:
            CLIENT.set(self._host.peer)
            message = await message.inflated(self._host.limits)
        return cast(Buffer, message)

    async def _run(self, request: GrpcRequest) -> None:
        self._working = True
        try:
            end = await self._send_all(self._host.handler.stream(request, self))
        except MessageError as error:
            end = self._refusal(error)
        except Exception:
            end = unforeseen(request.method)
        except BaseException:
            end = GrpcAnswer(code=CANCELLED)
            raise
        finally:
            if not self._over:
                self._over = True
                self.connection.sender.send(self, (), self._ending(end), ended=True)
            self._done()

    async def _send_all(self, answers: AsyncIterator[GrpcAnswer]) -> GrpcAnswer:
        """Send the answers as they come. Returns the one that ends the call."""
        trailing: Headers = ()
        try:
            async for answer in answers:
                if self._over:
                    break
                answer = fitting(answer, self._host.max_response_bytes)
                if answer.code:
                    return answer
                trailing = answer.trailing or trailing
                self._start()
                self.connection.sender.send(self, prefixed(answer.message, answer.parts)[1])
                if self.queued > _WAITING_BYTES:
                    self._send_waiter = self._host.loop.create_future()
                    await self._send_waiter
        finally:
            # the handler's generator must not outlive the call
            if (close := getattr(answers, "aclose", None)) is not None:
                await close()
        self._start()
        return GrpcAnswer(trailing=trailing)

    def _start(self) -> None:
        if not self._started and not self._over:
            self._started = True
            self.connection.sender.send_headers(self, ANSWER_HEADERS)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
