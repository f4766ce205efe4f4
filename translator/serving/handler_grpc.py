"""gRPC: methods by their full path, streams of messages in both directions, server reflection."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Literal

from interlingua.protocols.dialect import Binding, GrpcEndpoint
from interlingua.protocols.reflection import REFLECTION_METHODS, Reflection
from interlingua.protocols.transport.grpc.messages import MessageError
from interlingua.protocols.transport.load import SMALL_BYTES
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import ErrorCode, InferenceError, Operation
from interlingua.schemas.offload import OffloadRequired
from interlingua.translator.serving.access_log import Size
from interlingua.translator.serving.answer_headers import with_request_id
from interlingua.translator.serving.handler import Handling, Items, TransportPipeline
from interlingua.translator.serving.in_flight import InFlightRequest, error_of, refuse_inference
from interlingua.translator.serving.interleave import interleave
from interlingua.translator.serving.plans.cache import HeadForm

_STREAM_WINDOW = 64
"""How many messages of one stream are at work, or answered and not yet sent, at a time."""

_SMALL_WINDOW = 4096
"""How many messages of up to ``SMALL_BYTES`` are at work: one stream may carry many sequences, and the
first one may wait for its last message."""


_STATUS = {ErrorCode.UNAUTHENTICATED: 16, ErrorCode.FORBIDDEN: 7}
"""The statuses of gRPC for refusals."""


_RESOURCE_EXHAUSTED = 8

_STATUS_NAMES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""By number: https://grpc.github.io/grpc/core/md_doc_statuscodes.html"""


def grpc_status(answer: GrpcAnswer) -> str:
    """The name of the status of ``answer``."""
    return _STATUS_NAMES[answer.code] if answer.code < len(_STATUS_NAMES) else str(answer.code)


def _exhausted(error: InferenceError) -> GrpcAnswer:
    return GrpcAnswer(code=_RESOURCE_EXHAUSTED, details=error.message)


class _StreamTotals:
    """What a stream has carried: its messages and answers, the ``last`` of these, and the last failure."""

    __slots__ = ("answers", "failure", "last", "messages", "received", "sent")

    def __init__(self) -> None:
        self.messages = self.answers = self.received = self.sent = 0
        self.last = GrpcAnswer()
        self.failure: InferenceError | None = None


class GrpcPipeline(TransportPipeline):
    """A ``GrpcHandler``."""

    _key = attrgetter("method")
    _headers = attrgetter("metadata")
    _label, _transport = "{0.method}", "grpc"
    _status = grpc_status
    _head = HeadForm(attrgetter("method"), attrgetter("metadata"))
    _too_large = staticmethod(_exhausted)

    def __init__(self, handling: Handling, bindings: Sequence[Binding]) -> None:
        super().__init__(handling, bindings)
        self.restricted: set[str] = set()
        self.follow()

    @cached_property
    def _reflection(self) -> Reflection:
        # most listeners never get a reflection request
        return Reflection(contract for binding in self._bindings for contract in binding.contracts)

    def _keys(self, endpoint: GrpcEndpoint) -> Iterable[str]:
        return (endpoint.method,)

    def offers(self, method: str) -> Literal["unary", "stream"] | None:
        found = self._endpoints.get(method)
        streaming = method in REFLECTION_METHODS if found is None else found[0].streaming
        if streaming:
            return "stream"
        return None if found is None else "unary"

    def follow(self) -> None:
        """The options of the processor may have changed."""
        self.restricted.clear()
        for method, (endpoint, *_) in self._endpoints.items():
            if not endpoint.streaming and (self._processor.authenticates or self._restricts(endpoint)):
                self.restricted.add(method)

    async def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        """Answer every message of a stream, while later ones are already at work."""
        reflects = call.method in REFLECTION_METHODS
        refusal = self._refused_reflection(call) if reflects else self.refusal(call)
        if refusal is not None:
            yield refusal
            return
        if reflects:
            async for message in messages:
                yield self._reflection.answer(message)
            return
        if self._endpoints[call.method][0].pinned:
            call.context.pins = {}
        totals = self._begin_stream(call)
        every = interleave(
            messages,
            partial(self._answers, call, totals),
            _STREAM_WINDOW,
            _SMALL_WINDOW,
            lambda message: len(message) <= SMALL_BYTES,
        )
        try:
            async with aclosing(every) as answers:
                async for answer in answers:
                    totals.answers += 1
                    totals.sent += answer.size
                    totals.last = answer
                    yield with_request_id(answer, call.metadata)
                    if answer.code:
                        break
        except MessageError as refused:
            self._end_stream(call, totals, refused.error())
            raise
        except BaseException as failure:
            # a transport takes nothing after an answer that ends the stream
            error = totals.failure if totals.last.code else None
            self._end_stream(call, totals, error or error_of(failure))
            raise
        self._end_stream(call, totals, totals.failure if totals.last.code else None)

    def _begin_stream(self, call: GrpcRequest) -> _StreamTotals:
        call.context.began = time.monotonic_ns()
        return _StreamTotals()

    def _end_stream(self, call: GrpcRequest, totals: _StreamTotals, error: InferenceError | None) -> None:
        """Add the stream to the access log, in which its messages have records too."""
        access = self._endpoints[call.method][4]
        if error is None and not access.log.every:
            return
        size = Size(totals.received, totals.sent, totals.messages, totals.answers)
        outcome = access.outcome(totals.last, error, None)
        access.log.add(access.place, call.method, call.context, outcome, size, event="stream")

    def _refused_reflection(self, call: GrpcRequest) -> GrpcAnswer | None:
        """The refusal of a call of server reflection, which is of no dialect; None if it is permitted."""
        authorization = self._processor.authorization
        try:
            authorization.authenticate(call.context)
            if "metadata" not in authorization.unrestricted:
                authorization.admit("metadata", call.context)
        except InferenceError as error:
            return GrpcAnswer(code=_STATUS[error.code], details=error.message)
        return None

    async def _answers(self, call: GrpcRequest, totals: _StreamTotals, message: Buffer) -> Items:
        totals.messages += 1
        totals.received += len(message)
        endpoint, binding, account, _, access = self._endpoints[call.method]
        own = replace(call.context, timings={}, ended={}, arrived=0, reports_write=False)
        request = replace(call, message=message, context=own)
        processor, context, nbytes = self._processor, request.context, len(message)
        load, limit = account.load, self._limit
        with InFlightRequest(processor.service, account, endpoint, request, nbytes, access) as in_flight:
            if processor.authenticates:
                processor.authorization.authenticate(context)
            try:
                opened = endpoint.open(request)
            except OffloadRequired as required:
                opened = await required.offloader.run(processor.limits, endpoint.open, request)
            in_flight.opened = opened
            if processor.service.tracer is not None:
                in_flight.begin_trace(processor.default_model)
            if nbytes > SMALL_BYTES:
                in_flight.hold(nbytes)
            if load.requests > load.max_requests or load.total.requests > load.total.max_requests:
                refuse_inference(opened.action.operation, load, context)
            if context.identity is not None:
                in_flight.count(processor.clients, context.identity)
            items = None
            if opened.action.operation is Operation.INFER_STREAM:
                items = processor.stream(opened, binding, context)
            elif opened.action.watched:
                items = processor.watch(opened, binding, context)
            if items is None:
                answer = in_flight.answer = await processor.perform(opened, binding, context)
                if (size := answer.size) > limit.most:
                    raise in_flight.too_large(answer, size, limit)
            else:
                async with aclosing(in_flight.stream(items, limit)) as counted:
                    async for answer, last in counted:
                        totals.failure = context.failure or totals.failure
                        if answer is not None:
                            account.metrics.sent_bytes += answer.size
                        yield answer, last
                return
        totals.failure = in_flight.failure or totals.failure
        answer = in_flight.answer
        del message, request, in_flight  # their memory is free while the answer waits
        account.metrics.sent_bytes += answer.size
        yield answer, True
