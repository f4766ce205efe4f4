"""Exports traces over OTLP with the SDK of OpenTelemetry. This module imports the extra ``otlp``.

Contract: the event loop never waits, since a thread of the SDK sends. Its queue is bounded; a trace for which
it has no room is dropped as a whole, and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from threading import Thread
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from interlingua.schemas.trace import Span, Trace
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.config.tracing import Protocol, queue_sizes
from interlingua.translator.tracing.senders import SENDERS, Headers

_VERSION = version("interlingua")

_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}

_SCOPE = InstrumentationScope("interlingua", _VERSION)

_END_SECS = 5.0
"""The time at shutdown for the last spans."""


class Exporter:
    """Sends to ``url`` by ``protocol``, with ``headers`` from files. ``service`` is the name of the service,
    empty for that of the environment."""

    def __init__(
        self, url: str, service: str, headers: Headers, protocol: Protocol = "http/protobuf"
    ) -> None:
        # reports every failed batch once, without its retries
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        self._resource = _resource(service)
        self._sender = _Counting(SENDERS[protocol](url, headers))
        self._room, batch = queue_sizes()
        self._batches = BatchSpanProcessor(
            self._sender, max_queue_size=self._room, max_export_batch_size=batch
        )
        self._queued = self._dropped = 0

    @property
    def service(self) -> str:
        return str(self._resource.attributes[SERVICE_NAME])

    def export(self, trace: Trace) -> None:
        """Queue the spans of ``trace``, or drop them all."""
        spans = trace.spans
        if self._queued - self._sender.taken + len(spans) > self._room:
            self._dropped += len(spans)
            return
        self._queued += len(spans)
        for span in spans:
            self._batches.on_end(_readable(span, trace, self._resource))

    def close(self) -> None:
        """Send what is queued, for some seconds at most. Blocks."""
        # daemonic: a collector that does not answer must not hold up the exit
        closing = Thread(target=self._batches.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(_END_SECS)

    def metrics(self) -> Iterator[Family]:
        yield Family(
            "interlingua_spans_exported_total",
            "counter",
            "Spans that the collector has accepted.",
            [Sample(self._sender.accepted)],
        )
        lost = {"queue_full": self._dropped, "export_failed": self._sender.failed}
        yield Family(
            "interlingua_spans_dropped_total",
            "counter",
            "Spans of sampled requests that the collector has not got, by reason: no room in the queue, or "
            "the export has failed.",
            [Sample(spans, {"reason": reason}) for reason, spans in lost.items()],
        )


class _Counting(SpanExporter):
    """Counts what ``exporter`` does: the spans that it has ``taken``, and how they end."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.taken = self.accepted = self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._count(result, len(spans))
        return result

    def _count(self, result: SpanExportResult, spans: int) -> None:
        if result is SpanExportResult.SUCCESS:
            self.accepted += spans
        else:
            self.failed += spans

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _resource(service: str) -> Resource:
    """This process: the SDK adds a random ``service.instance.id``, and the attributes of the environment."""
    stated: dict[str, Any] = {SERVICE_VERSION: _VERSION, **({SERVICE_NAME: service} if service else {})}
    found = Resource.create(stated)
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: "interlingua"}))
    return found


def _readable(span: Span, trace: Trace, resource: Resource) -> ReadableSpan:
    state = TraceState.from_header([trace.tracestate]) if trace.tracestate else None
    flags = TraceFlags(trace.flags)
    parent = None
    if span.parent_id:
        remote = span.parent_id == trace.parent_id
        parent = SpanContext(trace.trace_id, span.parent_id, remote, flags, state)
    return ReadableSpan(
        span.name,
        SpanContext(trace.trace_id, span.span_id, False, flags, state),
        parent,
        resource,
        span.attributes,
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.began_ns,
        end_time=span.ended_ns,
        instrumentation_scope=_SCOPE,
    )
