"""Requests that repeat all but the contents of their tensors, passed on without a task: to the upstream from
the callback that has received the message, to the caller from the one that has received the answer.

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
from interlingua.protocols.transport.load import SMALL_BYTES
from interlingua.protocols.wire import NO_CONTEXT, REQUEST_ID, Buffer
from interlingua.runtime.upstream.fast_path import SentCall, UpstreamFastPath
from interlingua.schemas import Context, InferenceError, Operation
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.serving.access_log import AccessLog
from interlingua.translator.serving.answer_headers import UPSTREAM_TIMING
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.request_metrics import RequestMetrics

_ANSWERED = Operation.INFER, None
"""What an answered request counts as."""


class HandlerFastCall(SentCall):
    """A request on its way. ``caller`` waits for the answer."""

    __slots__ = ("_caller", "_fast", "_task")

    def __init__(self, fast: HandlerFastPath, caller: FastCaller) -> None:
        # SentCall.__init__, inlined
        self.path = fast.upstream
        self.began = time.monotonic_ns()
        self.taken = False
        self._future = self._outcome = None
        self._fast = fast
        self._caller: FastCaller | None = caller

    def set_result(self, reply: Any) -> None:
        caller = self._caller
        answer = None if caller is None else self._fast.answer(self, reply)
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
        self._task = loop.create_task(self.serve(request))
        loop.call_soon(self._task.cancel)


class HandlerFastPath:
    """The fast path of requests for ``model`` to one endpoint, which ``serve`` usually answers, and
    ``upstream`` forwards. ``most`` is the longest answer; one that is ``timed`` has ``Server-Timing``."""

    __slots__ = (
        "_load",
        "_log",
        "_metrics",
        "_model",
        "_most",
        "_processor",
        "_repeats",
        "_timed",
        "serve",
        "upstream",
    )

    def __init__(
        self,
        processor: RequestProcessor,
        metrics: RequestMetrics,
        log: AccessLog,
        model: str,
        most: float,
        timed: bool,
        serve: Callable[[Any], Awaitable[Any]],
        upstream: UpstreamFastPath,
    ) -> None:
        self._processor = processor
        self._metrics = metrics
        self._load = metrics.load
        self._log = log
        self._model = model
        self._most = most
        self._timed = timed
        self._repeats = upstream.repeats
        self.serve = serve
        self.upstream = upstream

    def begin(self, message: Buffer, context: Context, caller: FastCaller) -> HandlerFastCall | None:
        """See ``protocols.fast_path``."""
        size, pieces = self._repeats
        if len(message) != size:
            return None
        for start, stop, piece in pieces:
            if bytes(message[start:stop]) != piece:
                return None
        processor, load, total = self._processor, self._load, self._load.total
        service = processor.service
        router = service.router
        if (
            router.routes
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

    def answer(self, call: HandlerFastCall, reply: Any) -> Any:
        """The caller's answer, if ``reply`` passes as it is; else None."""
        if not reply.plain:
            return None
        try:
            found = self.upstream.read(reply)
        except Exception:
            return None  # the usual path raises it again
        if type(found) is not tuple or found[0].size > self._most:
            return None
        answer, version = found
        now = time.monotonic_ns()
        spent = now - call.began
        upstream, began = self.upstream, call.began
        call.member.end(True)
        upstream.counts.success(version, upstream.batch_size, (began, began, began, now, now, 0), NO_CONTEXT)
        metrics, load, service = self._metrics, self._load, self._processor.service
        service.trends.count(spent, False)
        next(service.numbers)
        # as InFlightRequest.__exit__
        metrics.in_flight -= 1
        load.requests -= 1
        load.total.requests -= 1
        metrics.ended[_ANSWERED] += 1
        metrics.sent_bytes += answer.size
        if metrics.timed:
            # Latencies.add, inlined
            place = bisect_left(LATENCY_BOUNDS_NS, spent)
            for latencies in metrics.flows[0, self._model], metrics.stages["upstream"]:
                latencies.counts[place] += 1
                latencies.ns += spent
        if self._timed:
            answer.headers = (*answer.headers, ("Server-Timing", UPSTREAM_TIMING % (spent / 1e6)))
        return answer

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
) -> tuple[str, UpstreamFastPath] | None:
    """The model of ``request`` and its target's fast path, if it may have one at all; else None."""
    context = request.context
    if REQUEST_ID in headers or context.identity is not None or binding.capability.joined_versions:
        return None
    try:
        opened = endpoint.open(request)
        if opened.action.operation is not Operation.INFER:
            return None
        model = opened.model or processor.default_model
        target = processor.service.router.models.get(model)
        if target is None or target.passthrough is not opened.action.passthrough:
            return None
        found = target.fast_path(opened, model, opened.version, context)
    except Exception:
        return None  # the usual path raises it again
    return None if found is None or found.repeats.size > SMALL_BYTES else (model, found)
