"""Begins and ends the traces of requests.

Contract: a sampled request has one span of kind SERVER, below that of its caller. The stages and the attempts
at upstreams are its children, the copies for mirrors too, which end later. Operations other than inference
are not sampled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from interlingua.protocols.span_attributes import of_answer, of_message
from interlingua.schemas import Context, ErrorCode
from interlingua.schemas.trace import SAMPLED, Trace, read_traceparent
from interlingua.translator.tracing.settings import TraceBook

_FAULTS = frozenset(
    {
        ErrorCode.UNSUPPORTED,
        ErrorCode.OVERLOADED,
        ErrorCode.UNAVAILABLE,
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.MODEL_FAILED,
        ErrorCode.BAD_UPSTREAM,
        ErrorCode.INTERNAL,
    }
)
"""What makes the status of a span of kind SERVER an error: not what its client has done wrong."""

Export = Callable[[Trace], None]
"""Takes a finished trace. Never blocks and never raises."""


class Tracer:
    """Samples by ``book``. ``export`` gets finished traces."""

    def __init__(self, book: TraceBook, export: Export) -> None:
        self._book = book
        self.export = export

    def begin(self, context: Context, model: str) -> None:
        """Sample the inference of ``context`` for ``model``, or not. If so, what it sends and logs has its
        trace from now on."""
        parent = read_traceparent(context.traceparent) if context.traceparent else None
        decided = None if parent is None else bool(parent.flags & SAMPLED)
        if not self._book.takes(model, decided):
            return
        # tracestate belongs to the caller's trace (section 3.3)
        trace = Trace.new() if parent is None else Trace.below(parent, context.tracestate)
        context.trace, context.traceparent, context.tracestate = trace, trace.traceparent, trace.tracestate

    def end(
        self,
        request: Any,
        answer: Any,
        failure: ErrorCode | None,
        attributes: Mapping[str, str],
    ) -> None:
        """Export the trace of ``request``, if it has one. ``answer`` is None if it is a stream. Those of
        ``attributes`` that are not empty are added to its span."""
        context: Context = request.context
        trace = context.trace
        if trace is None:
            return
        trace.stages(context.timings, context.ended)
        name, known = of_message(request)
        first = min([each.began_ns for each in trace.spans], default=0) - trace.offset_ns
        if first > context.began:
            trace.child("route", context.began, first)
        if context.arrived:
            trace.child("receive", context.arrived, context.arrived + context.received_ns)
        span = trace.own(name, context.arrived or context.began, time.monotonic_ns(), "server")
        span.attributes = {**known, **of_answer(answer)}
        span.attributes |= {key: value for key, value in attributes.items() if value}
        if failure is not None:
            span.attributes["error.type"] = failure.name
            if failure in _FAULTS:
                span.error = failure.name
        self.export(trace)
