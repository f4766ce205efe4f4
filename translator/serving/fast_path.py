"""Requests that repeat all but the contents of their tensors, sent on without a task, as they are or
translated: to the upstream from the callback that has received the message, to the caller from the one that
has received the answer.

Contract: what counts, and what a caller gets, is what the usual path would count and answer. A request takes
the usual path if anything would route, observe, restrict, trace, log or delay it, and goes over to it once
anything but an answer that passes has come, or the caller is gone.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from interlingua.protocols.dialect import Binding, Endpoint
from interlingua.protocols.fast_path import FastCaller
from interlingua.protocols.wire import REQUEST_ID, ArrivingMessage, Buffer, GrpcAnswer
from interlingua.runtime.upstream.fast_path import SentCall, UpstreamFastPath
from interlingua.schemas import Context, InferenceError, Latencies, Operation
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.serving.access_log import AccessLog
from interlingua.translator.serving.answer_headers import UPSTREAM_TIMING, server_timing
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.received_message import received_message
from interlingua.translator.serving.request_metrics import RequestMetrics
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import RouteKey

_ANSWERED = Operation.INFER, None
"""What an answered request counts as."""


class HandlerFastCall(SentCall):
    """A request on its way. ``caller`` waits for the answer."""

    __slots__ = ("_begun", "_caller", "_fast", "_task")

    def __init__(self, fast: HandlerFastPath, caller: FastCaller) -> None:
        # SentCall.__init__, inlined
        self.path = fast.upstream
        self.began = time.monotonic_ns()
        self.taken = False
        self._future = self._outcome = None
        self._fast = fast
        self._caller: FastCaller | None = caller
        self._begun: tuple[Any, str] | None = None

    def answer_begins(self, message: ArrivingMessage) -> Any:
        """See ``SentWaiter``."""
        if self._caller is not None:
            self._begun = self._fast.begun(message)
        return None if self._begun is None else self._caller

    def set_result(self, reply: Any) -> None:
        caller = self._caller
        answer = None if caller is None else self._fast.answer(self, reply, self._begun)
        if caller is None or answer is None:
            self._end(reply)
            return
        self._outcome, self._caller, self.handle = reply, None, None
        caller.answered(answer)

    def set_exception(self, fault: Exception) -> None:
        self._end(fault)

    def _end(self, outcome: Any) -> None:
        """The usual path goes on from ``outcome``."""
        caller = self._caller
        super().set_result(outcome)
        if caller is not None:
            self.leave()
            caller.fall_back()

    def leave(self) -> None:
        """See ``protocols.fast_path``."""
        if self._caller is not None:
            self._caller = None
            self._fast.leave()

    async def serve(self, request: Any) -> Any:
        """Answer ``request``, which goes over to the usual path."""
        request.context.sent = self
        try:
            return await self._fast.serve(request)
        finally:
            self.close()

    def abandon(self, request: Any) -> None:
        """The caller of ``request`` is gone: its usual path ends as soon as it waits for the answer."""
        self.leave()
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._serve_nobody(request))
        loop.call_soon(self._task.cancel)

    async def _serve_nobody(self, request: Any) -> None:
        """Serve ``request``, whose answer nothing reads: the reply may have come already."""
        answer = await self.serve(request)
        if answer.rest is not None:
            answer.rest.close()


class HandlerFastPath:
    """The fast path of requests with ``key`` to one endpoint, which ``serve`` usually answers, and
    ``upstream`` forwards: no route concerns them. ``default``: they name no model. ``most`` is the longest
    answer; one that is ``timed`` has ``Server-Timing``."""

    __slots__ = (
        "_context",
        "_default",
        "_histograms",
        "_key",
        "_load",
        "_log",
        "_metrics",
        "_model",
        "_most",
        "_processor",
        "_repeats",
        "_router",
        "_timed",
        "lead",
        "serve",
        "size",
        "upstream",
    )

    def __init__(
        self,
        processor: RequestProcessor,
        metrics: RequestMetrics,
        log: AccessLog,
        key: RouteKey,
        default: bool,
        most: float,
        timed: bool,
        serve: Callable[[Any], Awaitable[Any]],
        upstream: UpstreamFastPath,
    ) -> None:
        self._processor = processor
        self._metrics = metrics
        self._load = metrics.load
        self._log = log
        self._key = key
        self._model = key.model
        self._default = default
        self._histograms: tuple[Latencies, Latencies] | None = None
        self._most = most
        self._timed = timed
        self._repeats = upstream.repeats
        self.size, self.lead = upstream.repeats.size, upstream.lead
        self._router = processor.service.router
        self._context = Context(server_id=processor.service.id)
        self.serve = serve
        self.upstream = upstream

    def begin(
        self, message: Buffer | ArrivingMessage, context: Context, caller: FastCaller
    ) -> HandlerFastCall | None:
        """See ``protocols.fast_path``."""
        size, pieces = self._repeats
        if len(message) != size:
            return None
        if type(message) is bytes:
            for start, _, piece in pieces:
                if not message.startswith(piece, start):
                    return None
        elif not self._repeats.fits(message):
            return None
        processor, load, total = self._processor, self._load, self._load.total
        service = processor.service
        router = service.router
        if (
            (router is not self._router and not self._follow(router))
            or service.observers
            or service.tracer is not None
            or self._log.every
            or processor.header_parameters
            or processor.restricts_inference
            or processor.authenticates
            or load.requests >= load.max_requests
            or total.requests >= total.max_requests
            or router.models.get(self._model) is not self.upstream.target
        ):
            return None
        call = HandlerFastCall(self, caller)
        try:
            if not self.upstream.begin(message, context, call):
                return None
        except InferenceError:
            return None  # the usual path raises it again
        # as InFlightRequest.__enter__
        metrics = self._metrics
        metrics.in_flight += 1
        metrics.received_bytes += size
        load.requests += 1
        total.requests += 1
        return call

    def begun(self, message: ArrivingMessage) -> tuple[Any, str] | None:
        """The caller's answer that begins so and its version, if it passes as it is."""
        upstream = self.upstream
        answered: Any = message
        if not upstream.lead or message.size > self._most:
            return None
        try:
            found = upstream.read(GrpcAnswer(answered))
        except Exception:
            return None  # it is read again as a whole
        return found if type(found) is tuple else None

    def answer(self, call: HandlerFastCall, reply: Any, begun: tuple[Any, str] | None) -> Any:
        """The caller's answer, if ``reply`` passes as it is, or as it has ``begun`` to; else None."""
        upstream = self.upstream
        translated = upstream.splice is not None
        received = time.monotonic_ns() if translated else 0
        try:
            found = upstream.read(reply) if reply.plain else begun
        except Exception:
            return None  # the usual path raises it again
        if type(found) is not tuple:
            return None
        answer, version = found
        size = answer.size
        if size > self._most:
            return None
        now = time.monotonic_ns()
        spent = now - call.began
        metrics, load, service = self._metrics, self._load, self._processor.service
        call.member.end(True)
        service.trends.count(spent, False)
        number = next(service.numbers)
        # as InFlightRequest.__exit__
        metrics.in_flight -= 1
        load.requests -= 1
        load.total.requests -= 1
        metrics.ended[_ANSWERED] += 1
        metrics.sent_bytes += size
        if metrics.timed:
            # Latencies.add, inlined
            place = bisect_left(LATENCY_BOUNDS_NS, spent)
            flow, stage = self._histograms or self._find_histograms()
            flow.counts[place] += 1
            flow.ns += spent
            if not translated:
                stage.counts[place] += 1
                stage.ns += spent
        if translated:
            timing = self._count_translated(call, answer, version, number, (received, now))
        else:
            upstream.counts.repeated(version, upstream.batch_size, spent, 0, now)
            timing = UPSTREAM_TIMING % (spent / 1e6) if self._timed else ""
        if timing:
            answer.headers = (*answer.headers, ("Server-Timing", timing))
        return answer

    def _find_histograms(self) -> tuple[Latencies, Latencies]:
        """Those of the requests, and of their stage if they pass; they have none before the first answer."""
        metrics = self._metrics
        self._histograms = found = metrics.flows[0, self._model], metrics.stages["upstream"]
        return found

    def _count_translated(
        self, call: HandlerFastCall, answer: Any, version: str, number: int, times: tuple[int, int]
    ) -> str:
        """Count a translated request, and give its ``answer`` its ``number``. ``times`` are when its reply
        was there, and when its answer was. Returns its ``Server-Timing``."""
        upstream, metrics, sent = self.upstream, self._metrics, call.translated
        received, ended = times
        upstream.counts.repeated(version, upstream.batch_size, ended - sent, ended - received, ended)
        timings = {"decode": sent - call.began, "upstream": received - sent, "encode": ended - received}
        if metrics.timed:
            for stage, ns in timings.items():
                metrics.stages[stage].add(ns)
        if upstream.numbered is not None:
            self._context.request_number = number
            answer.headers = upstream.numbered(answer.headers, self._context)
        return server_timing(timings) if self._timed else ""

    def _follow(self, router: Router) -> bool:
        """Whether the requests have the same target by ``router``, that of another configuration."""
        processor = self._processor
        if (
            router.routes and router.candidates(self._key)
        ) or self._context.server_id != processor.service.id:
            return False
        if self._default and processor.default_model != self._model:
            return False
        self._router = router
        return True

    def leave(self) -> None:
        """A request goes over to the usual path, which counts it."""
        load = self._load
        self._metrics.received_bytes -= self._repeats.size
        self._metrics.in_flight -= 1
        load.requests -= 1
        load.total.requests -= 1


def fast_path(
    processor: RequestProcessor,
    binding: Binding,
    endpoint: Endpoint,
    request: Any,
    headers: Mapping[str, str],
) -> tuple[RouteKey, bool, UpstreamFastPath] | None:
    """What routes ``request``, whether it names no model, and its target's fast path, if it may have one at
    all; else None."""
    context = request.context
    if REQUEST_ID in headers or context.identity is not None or binding.capability.joined_versions:
        return None
    try:
        opened = endpoint.open(request)
        if opened.action.operation is not Operation.INFER:
            return None
        model = opened.model or processor.default_model
        server = processor.service.id
        router, passthrough = processor.service.router, opened.action.passthrough
        key = RouteKey(model, binding.dialect, processor.listener, opened.version, context.headers)
        target = router.models.get(model)
        if target is None or (router.routes and router.candidates(key)):
            return None
        if passthrough is not None and target.passthrough is passthrough:
            found = target.fast_path(opened, model, opened.version, context)
        elif "content-encoding" in headers:
            return None
        else:
            found = target.translated_fast_path(received_message(endpoint, request, opened, model, server))
    except Exception:
        return None  # the usual path raises it again
    return None if found is None else (key, not opened.model, found)
