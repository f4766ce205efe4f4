"""A unary call on a gRPC listener: the handler's answer, from a task, or that of a fast path without one."""

from __future__ import annotations

import logging
from typing import Any

from interlingua.protocols.fast_path import FastCall
from interlingua.protocols.transport.grpc.call import GrpcCall
from interlingua.protocols.transport.grpc.headers import ANSWER_HEADERS, OK, trailers
from interlingua.protocols.transport.grpc.messages import (
    PREFIX,
    PREFIX_BYTES,
    CompressedMessage,
    MessageError,
    prefixed,
)
from interlingua.protocols.transport.grpc.status import (
    CANCELLED,
    INTERNAL,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    fitting,
    unforeseen,
)
from interlingua.protocols.transport.h2.connection import H2Connection
from interlingua.protocols.transport.h2.passthrough import (
    BEGIN_BYTES,
    HELD_BYTES,
    PASSED_BYTES,
    FramePassthrough,
)
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.load import SMALL_BYTES, RefusedRequest
from interlingua.protocols.wire import NO_CONTEXT, ArrivingMessage, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas.offload import CLIENT

_log = logging.getLogger(__name__)

_CUT_SHORT = "the message of the call is cut short"


class UnaryCall(GrpcCall):
    """One message, one answer. The handler starts with the first message; later ones are ignored."""

    __slots__ = ()

    def check_caller(self) -> None:
        """Have the handler refuse the call by its headers, if it does."""
        request = self._request(b"")
        answer = self._host.handler.refusal(request)
        if answer is not None:
            self._task = self._host.loop.create_task(self._run(request, answer))

    def _request(self, message: Any) -> GrpcRequest:
        headers = self._headers
        return GrpcRequest(headers.method, message, headers.metadata, self.begun_context())

    @property
    def awaits_body(self) -> bool:
        """See ``GrpcCall``: a unary call is its message."""
        if self._over or self.half_closed_remote:
            return False
        passthrough: FramePassthrough | None = self.passthrough
        if passthrough is not None:
            return passthrough.left > 0 and passthrough.allowance > 0
        return not (self._task is not None or self._fast or self.window_held)

    @property
    def arrived(self) -> int:
        """See ``Stream``."""
        passthrough = self.passthrough
        return super().arrived if passthrough is None else passthrough.size - passthrough.left

    def on_drained(self) -> None:
        """See ``Stream``."""
        if self.feeder is not None:
            self.feeder.grant()
        super().on_drained()

    # messages that pass on while they arrive

    def _begin_passthrough(self, data: Buffer, start: int, stop: int) -> bool:
        """Whether the message that begins at ``data[start:stop]``, if one does, passes on while it arrives,
        or has ended the call."""
        if self.sink is not None or self._task is not None or self._over or self._fast:
            return False
        compressed, size = PREFIX.unpack_from(data, start)
        limit = self._host.max_request_bytes
        if compressed or size <= PASSED_BYTES or (limit is not None and size > limit):
            return False
        if size <= stop - start - PREFIX_BYTES:  # it is here, and may be sent again
            return False
        begin = start + PREFIX_BYTES
        lead = bytes(data[begin : min(stop, start + BEGIN_BYTES)])
        message: Any = ArrivingMessage(lead, size, self.deadline)
        request = self._request(message)
        if not self._hold(min(size, HELD_BYTES)):
            return True
        sent = self._host.repeated.begin_arriving(self._headers, request, self)
        if sent is None:
            return False
        self._sent, self._fast, self._message = sent, True, message
        self.passthrough = sent.handle.fed_by(self, self.connection, PREFIX_BYTES + size)
        return True

    def _forward(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        passthrough = self.passthrough
        if passthrough is None or self._over:
            return
        passthrough.take(data, start, stop)
        if ended and passthrough.left:
            self.end(GrpcAnswer(code=INTERNAL, details=_CUT_SHORT))

    def fed_by(self, source: Stream, connection: H2Connection[Any, Any], size: int) -> FramePassthrough:
        """Begin the answer, whose message of ``size`` bytes with its prefix comes from ``source``, a stream
        of ``connection``."""
        sender = self.connection.sender
        self._started = True
        sender.send_headers(self, ANSWER_HEADERS)
        self.feeder = feeder = FramePassthrough(source, connection, self, sender, size, ends=False)
        return feeder

    # the fast path

    def _answer_inline(self, found: GrpcAnswer | FastCall, message: Buffer) -> None:
        """Answer as the inline path has ``found``."""
        if isinstance(found, GrpcAnswer):
            self.answered(found)
        else:
            self._sent, self._message = found, message
            self.fall_back()

    def answered(self, answer: GrpcAnswer) -> None:
        """See ``FastCaller``."""
        self._fast, self._sent, self._message = False, None, b""
        try:
            self._answer(answer)
            self._done()
        except Exception:
            _log.exception("unexpected error")
            self.cut()

    def fall_back(self) -> None:
        """See ``FastCaller``."""
        self._fast = False
        self._task = self._host.loop.create_task(self._run(self._request(self._message)))

    def on_reset(self, code: int) -> None:
        """See ``Stream``. A call on the fast path goes over to its usual one, where it is cancelled as soon
        as it waits for the answer: a task that is cancelled before it begins would count nothing."""
        if self._sent is None or self._working or self._over:
            super().on_reset(code)
            return
        self._over = self._working = self._reset_at_work = True
        self.connection.reset_at_work += 1
        self.begun_context().cancel.cancel()
        if self._fast:
            self._sent.leave()
            self.fall_back()
        if self._task is not None:
            self._host.loop.call_soon(self._task.cancel)

    def count_arrived(self) -> None:
        """See ``Stream``."""
        self._hold(self.sink.filled)

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """See ``Stream``."""
        passes = self.passthrough is not None
        if passes or (stop - start >= BEGIN_BYTES and self._begin_passthrough(data, start, stop)):
            self._forward(data, start, stop, ended)
            return
        if self._task is not None or self._over or self._fast:
            return
        try:
            coding, limit = self._headers.coding, self._host.max_request_bytes
            for message in self.messages_in(data, start, stop, coding, limit, self._host.load.allocate):
                size = len(message)
                if (size > SMALL_BYTES or self.held is not None) and not self._hold(size):
                    return
                repeated, headers, answer = self._host.repeated, self._headers, None
                if repeated.headers is not headers:
                    repeated.begin(headers)
                if type(message) is CompressedMessage:
                    pass
                elif repeated.path is not None:
                    context = NO_CONTEXT if self.deadline is None else self.begun_context()
                    self._sent = repeated.path.begin(message, context, self)
                elif repeated.inline is not None and ended:
                    answer = repeated.inline.answer(message, self.begun_context())
                if self._sent is not None:
                    self._fast, self._message = True, message
                elif answer is not None:
                    self._answer_inline(answer, message)
                else:
                    request = self._request(message)
                    repeated.count = count = repeated.count + 1
                    # seldom, if there is no fast path
                    if not count & (count - 1) and type(message) is not CompressedMessage:
                        repeated.find(headers, request)
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
            self.end(GrpcAnswer(code=INTERNAL, details=_CUT_SHORT))
        elif ended:
            self.end(GrpcAnswer(code=UNIMPLEMENTED, details="a unary call has one message, not none"))

    def _refuse(self, error: MessageError) -> None:
        """End the call, whose message cannot be taken."""
        answer = self._refusal(error)
        status = "RESOURCE_EXHAUSTED" if answer.code == RESOURCE_EXHAUSTED else "INTERNAL"
        host, method = self._host, self._headers.method
        host.load.record(RefusedRequest("grpc", method, host.peer, status, error.error(), error.size or 0))
        self.end(answer)

    async def _run(self, request: GrpcRequest, refusal: GrpcAnswer | None = None) -> None:
        self._working = True
        try:
            message: Any = request.message
            if isinstance(message, CompressedMessage):
                size = len(message)
                CLIENT.set(self._host.peer)
                request.message = await message.inflated(self._host.limits)
                self._count(size + len(request.message))
            serve = self._host.handler.serve if self._sent is None else self._sent.serve
            answer = refusal or await serve(request)
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
        tail = trailers(answer) if answer.trailing else OK
        if self.feeder is not None and not answer.code:
            message: Any = answer.message
            if type(message) is ArrivingMessage and not self.feeder.left:
                self.connection.sender.send(self, (), tail, ended=True)
                return
            answer = GrpcAnswer(code=INTERNAL, details="another answer has begun")
        if not answer.code:
            size, pieces = prefixed(answer.message, answer.parts)
            limit = self._host.max_response_bytes
            if limit is None or size - PREFIX_BYTES <= limit:
                self._started = True
                self.connection.sender.send_whole(self, ANSWER_HEADERS, pieces, size, tail)
                return
            answer = fitting(answer, limit)
        self.connection.sender.send_end(self, self._ending(answer))
