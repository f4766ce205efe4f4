"""A unary call on a gRPC listener: the handler's response, from a task, or that of a plan without one."""

from __future__ import annotations

import logging
from typing import Any

from interlingua.protocols.plans import DONE, PlanExecution
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
from interlingua.protocols.wire import ArrivingMessage, Buffer, GrpcAnswer, GrpcRequest
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
        return not (self._task is not None or self._planned or self.window_held)

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
        if self.sink is not None or self._task is not None or self._over or self._planned:
            return False
        compressed, size = PREFIX.unpack_from(data, start)
        limit = self._host.max_request_bytes
        if compressed or size <= PASSED_BYTES or (limit is not None and size > limit):
            return False
        if size <= stop - start - PREFIX_BYTES:  # it is here, and may be sent again
            return False
        begin = start + PREFIX_BYTES
        lead = bytes(data[begin : min(stop, start + BEGIN_BYTES)])
        message = ArrivingMessage(lead, size, self.deadline)
        if not self._hold(min(size, HELD_BYTES)):
            return True
        plans = self._host.plans
        execution = None if plans is None else plans.execute(self._headers, message, self, False)
        if execution is None:
            return False
        self._execution, self._planned, self._message = execution, True, message
        self.passthrough = execution.handle.fed_by(self, self.connection, PREFIX_BYTES + size)
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

    # plans

    def respond(self, response: GrpcAnswer) -> None:
        """See ``PlannedRequest``."""
        self._planned, self._execution, self._message = False, None, b""
        try:
            self._answer(response)
            self._done()
        except Exception:
            _log.exception("unexpected error")
            self.cut()

    def resume(self, execution: PlanExecution) -> None:
        """See ``PlannedRequest``."""
        self._planned, self._execution = False, execution
        self._task = self._host.loop.create_task(self._run(self._request(self._message)))

    def on_reset(self, code: int) -> None:
        """See ``Stream``. The pipeline takes a call with a plan over, and is cancelled as soon as it waits
        for the response: a task that is cancelled before it begins would count nothing."""
        if self._execution is None or self._working or self._over:
            super().on_reset(code)
            return
        self._over = self._working = self._reset_at_work = True
        self.connection.reset_at_work += 1
        self.begun_context().cancel.cancel()
        if self._planned:
            self._execution.leave()
            self.resume(self._execution)
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
        if self._task is not None or self._over or self._planned:
            return
        try:
            coding, limit = self._headers.coding, self._host.max_request_bytes
            for message in self.messages_in(data, start, stop, coding, limit, self._host.load.allocate):
                size = len(message)
                if (size > SMALL_BYTES or self.held is not None) and not self._hold(size):
                    return
                if not self._follows_plan(message):
                    self._task = self._host.loop.create_task(self._run(self._request(message)))
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

    def _follows_plan(self, message: Any) -> bool:
        """Whether a plan has the call, whose ``message`` is here."""
        plans = self._host.plans
        if plans is None or type(message) is CompressedMessage:
            return False
        self._message = message
        # no response before the client has ended its side
        execution = plans.execute(self._headers, message, self, self.half_closed_remote)
        if execution is None:
            self._message = b""
            return False
        if execution is not DONE:
            self._execution, self._planned = execution, True
        return True

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
            serve = self._host.handler.serve if self._execution is None else self._execution.serve
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
