"""The handlers of a listener: a transport calls them with a request and gets an answer, never an exception.

One pipeline per listener, with a handler for each transport. All of them open a message by the tables of its
dialect and have ``processor`` carry it out, inside an ``InFlightRequest``.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial
from typing import Literal

from interlingua.protocols.accept import wants_html
from interlingua.protocols.dialect import (
    Binding,
    BrpcEndpoint,
    FramedEndpoint,
    GrpcEndpoint,
    HttpEndpoint,
)
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.reflection import REFLECTION_METHODS, Reflection
from interlingua.protocols.wire import (
    REQUEST_ID,
    BrpcAnswer,
    BrpcRequest,
    Buffer,
    FramedAnswer,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpRequest,
    parts_of,
)
from interlingua.schemas import ErrorCode, InferenceError, Operation
from interlingua.translator.serving import request_id
from interlingua.translator.serving.header_parameters import HeaderParameters
from interlingua.translator.serving.in_flight import InFlightRequest
from interlingua.translator.serving.interleave import StreamItem, interleave
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.request_metrics import RequestMetrics

_STREAM_WINDOW = 64
"""How many messages of one stream are at work, or answered and not yet taken, at a time."""

_SMALL_BYTES, _SMALL_WINDOW = 16384, 4096
"""Messages up to this size, and how many of those are at work: the sequences of one stream may be many, and
the first one ends with a message that comes late."""


Metrics = Mapping[str, RequestMetrics]
"""The request metrics of a listener, by dialect."""

HttpItems = AsyncGenerator[StreamItem[HttpAnswer], None]
GrpcItems = AsyncGenerator[StreamItem[GrpcAnswer], None]


class Pipeline:
    """Answers the requests of one listener, for which it asks ``service``. Use a side of it as a handler:
    ``http``, ``grpc``, ``brpc``, ``brpc_http`` and ``brpc_grpc`` for HTTP and gRPC on the port of a bRPC
    listener, or ``framed`` for tcp, where a binding has that transport. ``request_metrics`` count requests by
    dialect, and with ``timed`` how long they take."""

    def __init__(
        self,
        service: Service,
        listener: str,
        bindings: Sequence[Binding],
        default_model: str = "",
        max_request_bytes: int | None = None,
        timed: bool = False,
        header_parameters: HeaderParameters | None = None,
    ) -> None:
        self.service = service
        processor = RequestProcessor(service, listener, default_model, header_parameters)
        metrics = self.request_metrics = {binding.dialect: RequestMetrics(timed) for binding in bindings}
        over = _by_transport(bindings)
        multiplexed = _by_transport(each for binding in over["brpc"] for each in binding.multiplexed.values())
        self.http = HttpPipeline(processor, over["http"], metrics, max_request_bytes)
        self.grpc = GrpcPipeline(processor, over["grpc"], metrics)
        self.brpc = BrpcPipeline(processor, over["brpc"], metrics)
        self.framed = FramedPipeline(processor, over["tcp"][0], metrics) if over["tcp"] else None
        self.brpc_http = HttpPipeline(processor, multiplexed["http"], metrics, max_request_bytes)
        self.brpc_grpc = GrpcPipeline(processor, multiplexed["grpc"], metrics)


class HttpPipeline:
    """The HTTP side of a pipeline: an ``HttpHandler``."""

    def __init__(
        self,
        processor: RequestProcessor,
        bindings: Sequence[Binding],
        metrics: Metrics,
        max_request_bytes: int | None,
    ) -> None:
        self._processor = processor
        self._metrics = metrics
        self._bindings = bindings
        self._limit = max_request_bytes
        alone = len(bindings) == 1
        self._owners: dict[HttpEndpoint, str] = {
            endpoint: binding.dialect
            for binding in bindings
            for endpoint in binding.endpoints
            if alone or endpoint.path != "*"
        }
        self._paths = PathTable(self._owners)

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """Choose the endpoint; refuse unknown paths and methods before the body is read."""
        methods, params = self._paths.find(request.path)
        endpoint = methods.get(request.method) or methods.get("*")
        if endpoint is None:
            return request_id.in_http(self._unmatched(request, tuple(methods)), request.headers)
        if endpoint.page and not wants_html(request.headers.get("accept", "")):
            endpoint = self._paths.without_html.get(endpoint, endpoint)
        request.endpoint = endpoint
        request.params = params
        request.max_body_bytes = self._limit
        return None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request whose endpoint ``head`` has chosen."""
        began = time.monotonic_ns()
        endpoint: HttpEndpoint = request.endpoint
        dialect, processor, context = self._owners[endpoint], self._processor, request.context
        metrics = self._metrics[dialect]
        service, nbytes, name = processor.service, len(request.body), f"{request.method} {request.path}"
        with InFlightRequest(service, metrics, endpoint, request, nbytes, name) as in_flight:
            opened = in_flight.opened = endpoint.open(request)
            if opened.action.operation is Operation.INFER_STREAM:
                items = in_flight.stream(processor.stream(opened, dialect, context))
                in_flight.answer = await (
                    _collected(items) if opened.action.collects else _streamed(items, metrics)
                )
            else:
                in_flight.answer = await processor.perform(opened, dialect, context)
        answer: HttpAnswer = in_flight.answer
        if not isinstance(answer.parts, AsyncIterator):
            metrics.sent_bytes += _size_of(answer.parts)
        if endpoint.timed:
            # a request that fails in its first stage has no times yet
            timings = context.timings or {"decode": time.monotonic_ns() - began}
            answer.headers = (*answer.headers, ("Server-Timing", _timing(timings)))
        return request_id.in_http(answer, request.headers) if REQUEST_ID in request.headers else answer

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        """The transport's own refusal (body too large, say) in the dialect's form."""
        endpoint: HttpEndpoint | None = request.endpoint
        if endpoint is None:
            return _plain(400, error.message)
        if not request.context.request_number:  # it was not served
            self._processor.service.number(request.context)
            self._metrics[self._owners[endpoint]].refuse(error.code)
        return request_id.in_http(endpoint.fail(request, None, error), request.headers)

    def _unmatched(self, request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
        owner = next(
            (binding for binding in self._bindings if request.path.startswith(binding.prefixes)),
            self._bindings[0],
        )
        self._metrics[owner.dialect].refuse(ErrorCode.NOT_FOUND)
        if owner.unmatched is not None:
            return owner.unmatched(request, allowed)
        return _plain(405 if allowed else 404, "Method Not Allowed" if allowed else "Not Found")


class GrpcPipeline:
    """The gRPC side of a pipeline: a ``GrpcHandler``."""

    def __init__(self, processor: RequestProcessor, bindings: Sequence[Binding], metrics: Metrics) -> None:
        self._processor = processor
        self._metrics = metrics
        self._methods: dict[str, tuple[GrpcEndpoint, str]] = {
            endpoint.method: (endpoint, binding.dialect)
            for binding in bindings
            for endpoint in binding.endpoints
        }
        self._reflection = Reflection(contract for binding in bindings for contract in binding.contracts)

    def offers(self, method: str) -> Literal["unary", "stream"] | None:
        """Whether, and how, a dialect of this listener has ``method``."""
        found = self._methods.get(method)
        if found is None:
            return "stream" if method in REFLECTION_METHODS else None
        return "stream" if found[0].streaming else "unary"

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        """Answer one unary call."""
        method, processor = request.method, self._processor
        endpoint, dialect = self._methods[method]
        metrics, nbytes = self._metrics[dialect], len(request.message)
        with InFlightRequest(processor.service, metrics, endpoint, request, nbytes, method) as in_flight:
            opened = in_flight.opened = endpoint.open(request)
            in_flight.answer = await processor.perform(opened, dialect, request.context)
        answer: GrpcAnswer = in_flight.answer
        metrics.sent_bytes += len(answer.message)
        return request_id.in_grpc(answer, request.metadata) if REQUEST_ID in request.metadata else answer

    async def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        """Answer every message of a stream, while later ones are already at work."""
        if call.method in REFLECTION_METHODS:
            async for message in messages:
                yield self._reflection.answer(message)
            return
        if self._methods[call.method][0].pinned:
            call.context.pins = {}
        every = interleave(
            messages,
            partial(self._answers, call),
            _STREAM_WINDOW,
            _SMALL_WINDOW,
            lambda message: len(message) <= _SMALL_BYTES,
        )
        async with aclosing(every) as answers:
            async for answer in answers:
                yield request_id.in_grpc(answer, call.metadata)
                if answer.code:
                    return

    async def _answers(self, call: GrpcRequest, message: Buffer) -> GrpcItems:
        """All answers to one message of a stream."""
        method, processor = call.method, self._processor
        endpoint, dialect = self._methods[method]
        context = replace(call.context, timings={})
        request = GrpcRequest(method, message, call.metadata, context)
        metrics, nbytes = self._metrics[dialect], len(message)
        with InFlightRequest(processor.service, metrics, endpoint, request, nbytes, method) as in_flight:
            opened = in_flight.opened = endpoint.open(request)
            if opened.action.operation is Operation.INFER_STREAM:
                items = processor.stream(opened, dialect, context)
            elif opened.action.watched:
                items = processor.watch(opened, dialect, context)
            else:
                items = None
                in_flight.answer = await processor.perform(opened, dialect, context)
            if items is not None:
                async with aclosing(in_flight.stream(items)) as counted:
                    async for answer, last in counted:
                        if answer is not None:
                            metrics.sent_bytes += len(answer.message)
                        yield answer, last
                return
        metrics.sent_bytes += len(in_flight.answer.message)
        yield in_flight.answer, True


class BrpcPipeline:
    """The bRPC side of a pipeline: a ``BrpcHandler``."""

    def __init__(self, processor: RequestProcessor, bindings: Sequence[Binding], metrics: Metrics) -> None:
        self._processor = processor
        self._metrics = metrics
        self._methods: dict[tuple[str, str], tuple[BrpcEndpoint, str]] = {
            (service, endpoint.method): (endpoint, binding.dialect)
            for binding in bindings
            for endpoint in binding.endpoints
            for service in (endpoint.service, endpoint.service.rpartition(".")[2])
        }
        self._services = frozenset(service for service, _ in self._methods)

    def knows(self, service: str) -> bool:
        """Whether a dialect of this listener has ``service``, with or without its package."""
        return service in self._services

    def offers(self, service: str, method: str) -> bool:
        """Whether a dialect of this listener has ``method`` in ``service``."""
        return (service, method) in self._methods

    async def serve(self, request: BrpcRequest) -> BrpcAnswer:
        """Answer one call."""
        processor, name = self._processor, f"{request.service}/{request.method}"
        endpoint, dialect = self._methods[request.service, request.method]
        metrics, nbytes = self._metrics[dialect], len(request.message)
        with InFlightRequest(processor.service, metrics, endpoint, request, nbytes, name) as in_flight:
            opened = in_flight.opened = endpoint.open(request)
            in_flight.answer = await processor.perform(opened, dialect, request.context)
        answer: BrpcAnswer = in_flight.answer
        metrics.sent_bytes += len(answer.message)
        return request_id.in_brpc(answer, request.context.headers)


class FramedPipeline:
    """The tcp side of a pipeline: a ``FramedHandler``, in one dialect."""

    def __init__(self, processor: RequestProcessor, binding: Binding, metrics: Metrics) -> None:
        self._processor = processor
        self._metrics = metrics[binding.dialect]
        self._dialect = binding.dialect
        self._endpoint: FramedEndpoint = binding.endpoints[0]

    async def serve(self, request: FramedRequest) -> FramedAnswer:
        """Answer one message."""
        endpoint, metrics, processor = self._endpoint, self._metrics, self._processor
        nbytes = len(request.message)
        with InFlightRequest(processor.service, metrics, endpoint, request, nbytes, "a message") as in_flight:
            opened = in_flight.opened = endpoint.open(request)
            in_flight.answer = await processor.perform(opened, self._dialect, request.context)
        answer: FramedAnswer = in_flight.answer
        metrics.sent_bytes += _size_of(answer.parts)
        return answer

    def refuse(self, request: FramedRequest, error: InferenceError) -> FramedAnswer:
        """The transport's own refusal (a message too large, say) in the dialect's form."""
        if not request.context.request_number:  # it was not served
            self._metrics.refuse(error.code)
        return self._endpoint.fail(request, None, error)


def _by_transport(bindings: Iterable[Binding]) -> Mapping[str, list[Binding]]:
    found: defaultdict[str, list[Binding]] = defaultdict(list)
    for binding in bindings:
        found[binding.transport].append(binding)
    return found


async def _streamed(answers: HttpItems, metrics: RequestMetrics) -> HttpAnswer:
    """One answer with a streamed body out of ``answers``, whose first one says how it begins; ``metrics``
    counts its bytes. Raises as they do before the first."""
    async for first, _ in answers:
        if first is not None:
            break
    else:
        raise RuntimeError("a stream of answers has at least one")

    async def body() -> AsyncIterator[Buffer]:
        async with aclosing(answers):
            for part in parts_of(first):
                metrics.sent_bytes += len(part)
                yield part
            async for answer, _ in answers:
                for part in () if answer is None else parts_of(answer):
                    metrics.sent_bytes += len(part)
                    yield part

    return HttpAnswer(first.status, first.headers, body())


async def _collected(answers: HttpItems) -> HttpAnswer:
    """The one answer that is made of a whole stream of responses. Raises as they do."""
    async with aclosing(answers):
        async for answer, _ in answers:
            if answer is not None:
                return answer
    raise RuntimeError("a stream of answers has at least one")


def _size_of(parts: Iterable[Buffer]) -> int:
    nbytes = 0
    for part in parts:
        nbytes += part.nbytes if isinstance(part, memoryview) else len(part)
    return nbytes


def _timing(timings: Mapping[str, int]) -> str:
    """``timings`` as the header has them: milliseconds."""
    return _timing_form(*timings) % tuple([spent / 1e6 for spent in timings.values()])


@cache
def _timing_form(*stages: str) -> str:
    return ", ".join(f"{stage};dur=%.3f" for stage in stages)


def _plain(status: int, text: str) -> HttpAnswer:
    body = f"{text}\n".encode()
    return HttpAnswer(status, (("content-type", "text/plain; charset=utf-8"),), (body,))
