"""The path of a request through a handler, the same over every transport: find its endpoint, open it, have
``processor`` carry it out, count it.

A subclass for each transport declares where its messages have their parts.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from interlingua.protocols.brpc_status import BrpcStatus
from interlingua.protocols.dialect import Binding, BrpcEndpoint, Endpoint, FramedEndpoint
from interlingua.protocols.transport.framed.splitter import SIZE_BYTES
from interlingua.protocols.wire import REQUEST_ID, BrpcAnswer, FramedRequest
from interlingua.schemas import InferenceError, Operation
from interlingua.schemas.offload import OffloadRequired
from interlingua.translator.access.audit import recorded
from interlingua.translator.access.classes import CLASS_OF, PRIVILEGED, WITH_MODEL
from interlingua.translator.serving.access_log import EndpointLog
from interlingua.translator.serving.accounting import Account
from interlingua.translator.serving.answer_headers import server_timing, with_request_id
from interlingua.translator.serving.in_flight import (
    AnswerLimit,
    InFlightRequest,
    answer_size,
    refuse_inference,
)
from interlingua.translator.serving.interleave import StreamItem
from interlingua.translator.serving.plans.cache import HeadForm, PlanCache
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.request_metrics import RequestMetrics

Metrics = Mapping[str, RequestMetrics]
"""The request metrics of a listener, by dialect."""

Items = AsyncGenerator[StreamItem[Any], None]


def no_status(answer: Any) -> None:
    """Of an answer whose transport has no status."""


class Handling(NamedTuple):
    """What the handlers of one listener share."""

    processor: RequestProcessor
    metrics: Metrics
    max_request_bytes: int | None = None
    max_response_bytes: int | None = None


class TransportPipeline:
    """Answers the requests of one transport of a listener.

    The class attributes describe its messages: ``_key`` finds the endpoint of a request, ``_body`` and
    ``_headers`` are parts of it, and ``_label`` is the format of its name in logs. An answer has a
    ``_status``; ``_frame`` of its bytes are not its message; ``_too_large`` is the transport's own refusal of
    one above ``max_response_bytes``. Where a request ``_has_body``, that may be arriving, and have a content
    coding. With ``_names_model`` its head names the model, if anything does. ``_head`` is the form of heads
    for ``plans``, None where there are none.
    """

    _key: ClassVar[attrgetter[Any]]
    _body: ClassVar[attrgetter[Any]] = attrgetter("message")
    _headers: ClassVar[attrgetter[Any]] = attrgetter("context.headers")
    _label: ClassVar[str]
    _transport: ClassVar[str]
    _status: ClassVar[Any] = attrgetter("code")
    _has_body: ClassVar[bool] = False
    _names_model: ClassVar[bool] = False
    _frame: ClassVar[int] = 0
    _too_large: ClassVar[Any] = None
    _head: ClassVar[HeadForm | None] = None

    def __init__(self, handling: Handling, bindings: Sequence[Binding]) -> None:
        self._handling = handling
        self._processor = handling.processor
        self._bindings = bindings
        self._limit, limit, kind = AnswerLimit(), handling.max_response_bytes, type(self)
        if limit is not None:
            self._limit = AnswerLimit(limit + kind._frame, kind._frame, kind._too_large)
        self._access = {binding.dialect: self._endpoint_log(binding) for binding in bindings}
        accounts = {name: Account(metrics) for name, metrics in handling.metrics.items()}
        self.plans: PlanCache | None = None
        if kind._head is not None:
            self.plans = PlanCache(handling.processor, kind._head, self.serve)
        self._endpoints: Mapping[Any, tuple[Any, Binding, Account, bool, EndpointLog]] = {
            key: (
                endpoint,
                binding,
                accounts[binding.dialect],
                self._is_timed(endpoint),
                self._access[binding.dialect],
            )
            for binding in bindings
            for endpoint in binding.endpoints
            for key in self._keys(endpoint)
        }

    def _keys(self, endpoint: Any) -> Iterable[Any]:
        raise NotImplementedError

    def _endpoint_log(self, binding: Binding | None = None) -> EndpointLog:
        """The access log of ``binding``, or of requests that belong to no dialect."""
        processor, status = self._processor, type(self)._status
        place = {"listener": processor.listener, "transport": self._transport}
        log = processor.service.access
        if binding is None:
            return EndpointLog(log, place, self._label, status)
        own = {**place, "dialect": binding.dialect}
        return EndpointLog(log, own, self._label, status, binding.failure_status)

    def _is_timed(self, endpoint: Any) -> bool:
        """Whether answers of ``endpoint`` have ``Server-Timing``."""
        return False

    def refusal(self, request: Any) -> Any:
        """The answer to a request that its head refuses, before its message is read: its credentials are not
        valid, or its caller may request no operation of its endpoint. None for any other."""
        endpoint, binding, *_ = self._endpoints[self._key(request)]
        processor, operation = self._processor, None
        try:
            if processor.authenticates:
                processor.authorization.authenticate(request.context)
            if self._restricts(endpoint):
                operation = endpoint.operations[-1]
                self._admit(request, endpoint, binding)
        except InferenceError as error:
            return self.refuse(request, error, operation)
        return None

    def _restricts(self, endpoint: Endpoint) -> bool:
        """Whether no operation of ``endpoint`` is for everyone. The record of a refused one may have to wait
        for the message."""
        operations, unrestricted = endpoint.operations, self._processor.authorization.unrestricted
        for each in operations:
            if CLASS_OF[each] in unrestricted:
                return False
        return bool(operations) and (self._names_model or operations[-1] not in WITH_MODEL)

    def _model(self, request: Any) -> str:
        """The model that the head of ``request`` names."""
        return ""

    def _admit(self, request: Any, endpoint: Endpoint, binding: Binding) -> None:
        """Raises the refusal of a caller who may request no operation of ``endpoint``, and records it."""
        processor, context = self._processor, request.context
        *others, operation = endpoint.operations
        for other in others:
            with suppress(InferenceError):
                processor.admit(CLASS_OF[other], context)
                return
        requested = CLASS_OF[operation]
        try:
            processor.admit(requested, context)
        except InferenceError:
            if requested not in PRIVILEGED:
                raise
            authorization, model = processor.authorization, self._model(request)
            place = processor.listener, binding.dialect, authorization.refusals
            with recorded(requested, operation.value, model, *place) as entry:
                entry.caller = authorization.caller(context)
                raise

    async def serve(self, request: Any) -> Any:
        processor, context = self._processor, request.context
        endpoint, binding, account, timed, access = self._endpoints[self._key(request)]
        nbytes, load, sent = len(self._body(request)), account.load, -1
        arriving = request if self._has_body and request.rest is not None else None
        if arriving is not None:
            nbytes += arriving.rest.length
        with InFlightRequest(processor.service, account, endpoint, request, nbytes, access) as in_flight:
            try:
                opened = endpoint.open(request)
            except OffloadRequired as required:
                opened = await required.offloader.run(processor.limits, endpoint.open, request)
            in_flight.opened = opened
            if processor.service.tracer is not None:
                in_flight.begin_trace(processor.default_model)
            if self._has_body and "content-encoding" in request.headers:
                opened.count = in_flight.hold_decompressed
                in_flight.hold_decompressed()
            if arriving is not None:
                opened.arriving = arriving
            if load.requests > load.max_requests or load.total.requests > load.total.max_requests:
                refuse_inference(opened.action.operation, load, context)
            if context.identity is not None:
                in_flight.count(processor.clients, context.identity)
            if opened.action.operation is Operation.INFER_STREAM:
                collects = opened.action.collects
                limit = self._limit if collects else AnswerLimit()
                items = in_flight.stream(processor.stream(opened, binding, context), limit)
                in_flight.answer = await self._whole(items, collects, account.metrics)
            else:
                answer = in_flight.answer = await processor.perform(opened, binding, context)
                size = answer.size if answer.rest is None else answer_size(answer)
                if size > self._limit.most:
                    raise in_flight.too_large(answer, size, self._limit)
                sent = size
        answer = in_flight.answer
        account.metrics.sent_bytes += answer_size(answer) if sent < 0 else sent
        if self.plans is not None and in_flight.answered_anew and arriving is None:
            self.plans.answered(request, endpoint, binding, opened, (account, access, self._limit, timed))
        if timed:
            # a request that fails in its first stage has no times yet
            timings = context.timings or {"decode": time.monotonic_ns() - in_flight.began}
            answer.headers = (*answer.headers, ("Server-Timing", server_timing(timings)))
        headers = self._headers(request)
        return with_request_id(answer, headers) if REQUEST_ID in headers else answer

    def refuse(self, request: Any, error: InferenceError, operation: Operation | None = None) -> Any:
        """The refusal of an ``operation``, or of any by the transport (a message too large, say), in the
        dialect's form."""
        endpoint, _, account, _, access = self._endpoints[self._key(request)]
        served, context = bool(request.context.request_number), request.context
        if not served:
            self._processor.service.number(context)
            account.metrics.refuse(error.code, operation)
            if context.identity is not None:
                self._processor.clients.count(context.identity, error.code)
        answer = endpoint.fail(request, None, error)
        if not served:  # otherwise the record is made as it ends
            about = operation, self._model(request), ""
            access.refused(request, answer, error, len(self._body(request)), answer_size(answer), about)
        return with_request_id(answer, self._headers(request))

    async def _whole(self, items: Items, collects: bool, metrics: RequestMetrics) -> Any:
        """The one answer with all ``items``, over transports that have a form for it."""
        raise NotImplementedError


def _erroneous_response(error: InferenceError) -> BrpcAnswer:
    return BrpcAnswer(code=BrpcStatus.ERESPONSE, text=error.message)


class BrpcPipeline(TransportPipeline):
    """A ``BrpcHandler``."""

    _key = attrgetter("service", "method")
    _label, _transport = "{0.service}/{0.method}", "brpc"
    _head = HeadForm(attrgetter("service", "method"), attrgetter("context.headers"))
    _too_large = staticmethod(_erroneous_response)

    def __init__(self, handling: Handling, bindings: Sequence[Binding]) -> None:
        super().__init__(handling, bindings)
        self._services = frozenset(service for service, _ in self._endpoints)

    def _keys(self, endpoint: BrpcEndpoint) -> Iterable[tuple[str, str]]:
        name = endpoint.service
        return ((service, endpoint.method) for service in (name, name.rpartition(".")[2]))

    def knows(self, service: str) -> bool:
        return service in self._services

    def offers(self, service: str, method: str) -> bool:
        return (service, method) in self._endpoints


class FramedPipeline(TransportPipeline):
    """A ``FramedHandler``: messages have no method, since a listener has one endpoint."""

    _key = attrgetter("__class__")
    _label, _transport, _frame = "a message", "tcp", SIZE_BYTES
    _status = no_status

    def _keys(self, endpoint: FramedEndpoint) -> Iterable[type]:
        return (FramedRequest,)
