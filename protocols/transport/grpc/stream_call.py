"""A streaming call on a gRPC listener: its handler starts with its headers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, cast

from interlingua.protocols.transport.closing import ended_by
from interlingua.protocols.transport.grpc.call import CallHost, GrpcCall
from interlingua.protocols.transport.grpc.headers import ANSWER_HEADERS, CallHeaders
from interlingua.protocols.transport.grpc.messages import (
    PREFIX_BYTES,
    CompressedMessage,
    MessageError,
    prefixed,
)
from interlingua.protocols.transport.grpc.status import CANCELLED, INTERNAL, fitting, unforeseen
from interlingua.protocols.transport.h2.flood import SMALL_BYTES
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.load import SMALL_BYTES as SMALL_BODY_BYTES
from interlingua.protocols.transport.turns import TURN_MESSAGES, next_turn
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest, Headers
from interlingua.schemas.offload import CLIENT

_HELD_BYTES = 1 << 17
"""How much of a stream's messages is buffered before its flow-control window is held."""

_WAITING_BYTES = 1 << 18
"""How much of a stream's answers may be queued before the handler waits."""


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
            self._run(GrpcRequest(headers.method, b"", headers.metadata, self.begun_context()))
        )

    def count_arrived(self) -> None:
        """See ``Stream``."""
        self._hold(self.sink.filled + self._held)

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
            answers = self._host.handler.stream(request, self)
            # the handler's generator must not outlive the call
            end = await ended_by(self._send_all(answers), getattr(answers, "aclose", None))
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
        self._start()
        return GrpcAnswer(trailing=trailing)

    def _start(self) -> None:
        if not self._started and not self._over:
            self._started = True
            self.connection.sender.send_headers(self, ANSWER_HEADERS)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
