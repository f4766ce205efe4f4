"""Requests that repeat the headers of others, to a local model that answers at once: decoded, run and encoded
in the callback that has received them, without a task.

Contract: what counts, and what a caller gets, is what the usual path would count and answer. A request takes
the usual path if anything would route, observe, restrict, trace, log or delay it, or if it cannot be decoded.
What goes wrong once the model has run ends in a task, which counts it as the usual path does.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

from interlingua.protocols.dialect import BrpcEndpoint, GrpcEndpoint, HttpEndpoint, Opened
from interlingua.protocols.wire import REQUEST_ID, BrpcRequest, Buffer, GrpcRequest, HttpRequest
from interlingua.runtime.shared_memory import is_used
from interlingua.runtime.target import Target
from interlingua.schemas import Context, InferRequest, Operation
from interlingua.schemas.offload import OffloadRequired
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.serving.access_log import EndpointLog
from interlingua.translator.serving.answer_headers import server_timing
from interlingua.translator.serving.in_flight import AnswerLimit, InFlightRequest
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.request_metrics import RequestMetrics

_Endpoint = HttpEndpoint | GrpcEndpoint | BrpcEndpoint

_ANSWERED = Operation.INFER, None
"""What an answered request counts as."""

_MOST_SKIPPED = 1024
"""The most requests that take the usual path unread, after others that the model would not answer at once."""


@dataclass(slots=True, eq=False)
class HandlerInlinePath:
    """The path of requests of up to ``most`` bytes that repeat ``request``, opened as ``opened``, to
    ``target``, the ``model``. While one is answered, ``request`` has its ``body``, an attribute; those that
    ``reopen`` are opened one by one. The rest is what their handler has."""

    processor: RequestProcessor
    endpoint: _Endpoint
    metrics: RequestMetrics
    access: EndpointLog
    limit: AnswerLimit
    timed: bool
    body: str
    request: Any
    opened: Opened[Any]
    model: str
    target: Target
    most: float
    reopen: bool
    _patience: int = 1
    _skip: int = 0

    def answer(self, message: Buffer, context: Context | None = None) -> Any:
        """See ``protocols.fast_path``."""
        if self._skip:
            self._skip -= 1
            return None
        processor, opened, target, load = self.processor, self.opened, self.target, self.metrics.load
        service = processor.service
        if (
            service.router.routes
            or service.observers
            or service.tracer is not None
            or self.access.log.every
            or processor.header_parameters
            or processor.restricts_inference
            or processor.authenticates
            or load.requests >= load.max_requests
            or load.total.requests >= load.total.max_requests
            or service.router.models.get(self.model) is not target
            or not (opened.model or processor.default_model == self.model)
            or len(message) > self.most
        ):
            return None
        began, own = time.monotonic_ns(), self.request.context
        if context is None:
            context = own
        context.timings, context.ended, context.version, context.request_number = {}, {}, "", 0
        context.server_id = service.id  # a reload may change it
        try:
            found = self._opened(message, context)
            if found is None:
                return None
            decode: Callable[..., tuple[InferRequest, Any]] = opened.action.decode  # type: ignore[assignment]
            request, form = decode(found, target.version(opened.version).signature)
            if request.sequence is not None or is_used(request):
                return self._passed_by()
        except Exception:
            return None  # the usual path raises it again
        finally:
            if self.reopen:
                setattr(self.request, self.body, b"")
                self.request.context = own
        request.model, request.context = self.model, context
        context.ended["decode"] = ended = time.monotonic_ns()
        context.timings["decode"] = ended - began
        return self._run(found, request, form, began, len(message))

    def _passed_by(self) -> None:
        """The model would wait: leave as many of the next requests unread as it has done before."""
        self._skip, self._patience = self._patience, min(2 * self._patience, _MOST_SKIPPED)

    def _opened(self, message: Buffer, context: Context) -> Opened[Any] | None:
        """``message`` opened, of which ``request`` is a part until it is decoded; None if it is for another
        model, or not an inference. Raises as endpoints."""
        if not self.reopen:
            self.request.body = message
            return self.opened
        request, known = self.request, self.opened
        setattr(request, self.body, message)
        request.context = context
        found = self.endpoint.open(request)
        same = found.action is known.action and found.model == known.model and found.version == known.version
        return found if same else None

    def _run(self, opened: Opened[Any], request: InferRequest, form: Any, began: int, received: int) -> Any:
        encode: Callable[..., Any] = self.opened.action.encode
        answered, context = 0, request.context
        try:
            response = self.target.infer_now(request)
            if response is None:
                context.timings, context.ended = {}, {}
                return self._passed_by()
            self._patience = 1
            context.request_number = next(self.processor.service.numbers)
            answered = time.monotonic_ns()
            response.model, context.version = request.model, response.version
            answer = encode(form, response)
        except OffloadRequired as required:
            limits = self.processor.limits
            encoded = partial(required.offloader.run, limits, encode, form, response)
            return UnfinishedCall(self, opened, context, began, received, encoded, answered)
        except Exception as error:
            return UnfinishedCall(self, opened, context, began, received, partial(_given, error))
        size = answer.size
        if size > self.limit.most:
            return UnfinishedCall(self, opened, context, began, received, partial(_given, answer), answered)
        context.timings["encode"] = (ended := time.monotonic_ns()) - answered
        self._count(context, received, size, ended - began)
        if not self.reopen:
            self.request.body = b""  # the connection may be idle for long
        if self.opened.action.numbered is not None:
            answer.headers = self.opened.action.numbered(answer.headers, context)
        if self.timed:
            timing = server_timing(context.timings)
            answer.headers = (*answer.headers, ("Server-Timing", timing))
        return answer

    def _count(self, context: Context, received: int, sent: int, spent: int) -> None:
        """As ``InFlightRequest`` and the processor count an answered request."""
        metrics, service = self.metrics, self.processor.service
        service.trends.count(spent, False)
        metrics.received_bytes += received
        metrics.sent_bytes += sent
        metrics.ended[_ANSWERED] += 1
        if metrics.timed:
            # Latencies.add, inlined
            flow = metrics.flows[0, self.model]
            flow.counts[bisect_left(LATENCY_BOUNDS_NS, spent)] += 1
            flow.ns += spent
            for stage, ns in context.timings.items():
                latencies = metrics.stages[stage]
                latencies.counts[bisect_left(LATENCY_BOUNDS_NS, ns)] += 1
                latencies.ns += ns


class UnfinishedCall:
    """A ``FastCall``: a request on ``path``, read as ``opened``, whose model has run. ``finish`` returns its
    answer, which may be too large, or raises; the model had ``answered`` at that ``time.monotonic_ns()``."""

    def __init__(
        self,
        path: HandlerInlinePath,
        opened: Opened[Any],
        context: Context,
        began: int,
        received: int,
        finish: Callable[[], Awaitable[Any]],
        answered: int = 0,
    ) -> None:
        self._path = path
        self._opened = opened
        self._began = began
        self._received = received
        self._finish = finish
        self._answered = answered
        self._timings, self._ended, self._version = context.timings, context.ended, context.version
        self._number = context.request_number

    async def serve(self, request: Any) -> Any:
        """See ``protocols.fast_path``."""
        path, failed = self._path, True
        try:
            with self._in_flight(request) as in_flight:
                found = in_flight.answer = await self._finish()
                self._ended["encode"] = ended = time.monotonic_ns()
                self._timings["encode"] = ended - self._answered
                failed = False
                if found.size > path.limit.most:
                    raise in_flight.too_large(found, found.size, path.limit)
                if path.opened.action.numbered is not None:
                    found.headers = path.opened.action.numbered(found.headers, request.context)
        finally:
            path.processor.service.trends.count(time.monotonic_ns() - self._began, failed)
        answer = in_flight.answer
        path.metrics.sent_bytes += answer.size
        if path.timed:
            answer.headers = (*answer.headers, ("Server-Timing", server_timing(self._timings)))
        return answer

    def _in_flight(self, request: Any) -> InFlightRequest:
        path, context = self._path, request.context
        context.timings, context.ended = self._timings, self._ended
        context.target, context.version = path.model, self._version
        in_flight = InFlightRequest(
            path.processor.service, path.metrics, path.endpoint, request, self._received, path.access
        )
        in_flight.opened, in_flight.began, in_flight.number = self._opened, self._began, self._number
        return in_flight

    def leave(self) -> None:
        """Nothing counts it yet."""

    def abandon(self, request: Any) -> None:
        """See ``protocols.fast_path``."""
        with suppress(asyncio.CancelledError), self._in_flight(request):
            raise asyncio.CancelledError
        self._path.processor.service.trends.count(time.monotonic_ns() - self._began, True)

    def close(self) -> None:
        """Nothing waits for it."""


async def _given(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def inline_path(
    processor: RequestProcessor,
    endpoint: _Endpoint,
    request: HttpRequest | GrpcRequest | BrpcRequest,
    headers: Mapping[str, str],
    counted: tuple[RequestMetrics, EndpointLog, AnswerLimit, bool],
) -> HandlerInlinePath | None:
    """The path of requests that repeat ``request``, if its model answers that at once; else None."""
    context = request.context
    reopen = not (isinstance(endpoint, HttpEndpoint) and endpoint.repeatable)
    if reopen and not endpoint.inline:
        return None
    if REQUEST_ID in headers or "content-encoding" in headers or context.identity is not None:
        return None
    own = replace(
        request, context=Context(peer=context.peer, headers=headers, server_id=processor.service.id)
    )
    try:
        opened: Opened[Any] = endpoint.open(own)  # type: ignore[arg-type]
        model = opened.model or processor.default_model
        # a name that could be another with a version joined to it is the model of that name
        target = processor.service.router.models.get(model)
        if target is None or opened.action.operation is not Operation.INFER or opened.action.decode is None:
            return None
        decoded, _ = opened.action.decode(opened, target.version(opened.version).signature)
        if not target.infers_at_once(decoded):
            return None
    except Exception:
        return None  # the usual path raises it again
    body, most = "message", inf
    if isinstance(own, HttpRequest):
        body, most = "body", inf if own.max_body_bytes is None else own.max_body_bytes
    if reopen:  # nothing of the message is kept
        setattr(own, body, b"")
        opened = replace(opened, message=None, argument=None)
    return HandlerInlinePath(processor, endpoint, *counted, body, own, opened, model, target, most, reopen)
