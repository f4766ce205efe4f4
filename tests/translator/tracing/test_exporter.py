"""The export of traces: what the collector gets, and what becomes of spans that it does not get."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from interlingua.runtime.upstream.header_file import HeaderFile
from interlingua.schemas.trace import Trace, read_traceparent
from interlingua.translator.config.tracing import Protocol
from interlingua.translator.tracing import exporter as module
from interlingua.translator.tracing.build import endpoint
from interlingua.translator.tracing.exporter import Exporter
from tests.e2e.collector import EXPORT, Collector, collector, grpc_collector
from tests.ports import free_port

CALLER = read_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


PATHS: dict[Protocol, str] = {"http/protobuf": "/v1/traces", "grpc": EXPORT}


@pytest.fixture(params=PATHS)
def protocol(request: pytest.FixtureRequest) -> Protocol:
    found: Protocol = request.param
    return found


@pytest.fixture
def found(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with (grpc_collector if protocol == "grpc" else collector)() as running:
        yield running


def exporting(
    to: Collector, protocol: Protocol, service: str = "", headers: dict[str, HeaderFile] | None = None
) -> Exporter:
    return Exporter(endpoint(to.url, protocol), service, headers or {}, protocol)


def traced(children: int = 1) -> Trace:
    assert CALLER is not None
    trace = Trace.below(CALLER, "vendor=one")
    now = time.monotonic_ns()
    for number in range(children):
        trace.child(f"stage {number}", now, now + 5)
    span = trace.own("request", now, now + 10, "server")
    span.error, span.attributes["interlingua.model"] = "UNAVAILABLE", "m"
    return trace


def metrics(exporter: Exporter) -> dict[str, float]:
    return {
        "".join((family.name, *sample.labels.values())): sample.value
        for family in exporter.metrics()
        for sample in family.samples
    }


def test_a_trace_arrives(found: Collector, protocol: Protocol) -> None:
    exporter = exporting(found, protocol, "bridge")
    trace = traced()
    exporter.export(trace)
    exporter.close()
    child, request = sorted(found.spans, key=lambda span: span.kind)
    assert (request.service, request.parent_id, request.error) == (
        "bridge",
        "b7ad6b7169203331",
        "UNAVAILABLE",
    )
    assert (child.parent_id, child.kind, child.error) == (request.span_id, "internal", None)
    assert request.span_id == f"{trace.span_id:016x}"
    assert request.ended - request.began == 10
    assert abs(request.began - time.time_ns()) < 60e9
    assert found.path == PATHS[protocol]
    assert metrics(exporter) == {
        "interlingua_spans_exported_total": 2,
        "interlingua_spans_dropped_totalqueue_full": 0,
        "interlingua_spans_dropped_totalexport_failed": 0,
    }


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def service(stated: str) -> str:
        exporter = Exporter(endpoint("http://127.0.0.1:9", "grpc"), stated, {}, "grpc")
        exporter.close()
        return exporter.service

    assert service("") == "interlingua"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
    assert (service(""), service("ours")) == ("theirs", "ours")


def test_a_trace_without_room_is_dropped_whole(
    found: Collector, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    exporter = exporting(found, protocol)
    for _ in range(3):
        exporter.export(traced(children=2))
    exporter.close()
    assert len(found.spans) == 6
    assert metrics(exporter)["interlingua_spans_dropped_totalqueue_full"] == 3


def test_what_the_collector_refuses_is_counted(found: Collector, protocol: Protocol) -> None:
    found.status = 400
    exporter = exporting(found, protocol)
    exporter.export(traced())
    exporter.close()
    assert metrics(exporter)["interlingua_spans_dropped_totalexport_failed"] == 2


def test_spans_whose_export_raises_are_counted(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    class Raising(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            raise ValueError("a header has a line break")

    monkeypatch.setitem(module.SENDERS, protocol, lambda url, headers: Raising())  # type: ignore[arg-type]
    exporter = exporting(Collector(f"http://127.0.0.1:{free_port()}"), protocol)
    exporter.export(traced())
    exporter.close()
    assert metrics(exporter)["interlingua_spans_dropped_totalexport_failed"] == 2


def test_requests_never_wait_for_a_collector_that_is_not_there(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the SDK retries for longer; the exit does not wait for that
    monkeypatch.setattr(module, "_END_SECS", 0.1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    before = set(threading.enumerate())
    exporter = exporting(Collector(f"http://127.0.0.1:{free_port()}"), protocol)
    for _ in range(2000):
        exporter.export(traced())
    began = time.monotonic()
    exporter.close()
    assert time.monotonic() - began < 20
    lost = metrics(exporter)
    assert lost["interlingua_spans_dropped_totalqueue_full"] > 0
    assert lost["interlingua_spans_exported_total"] == 0
    for thread in set(threading.enumerate()) - before:  # it draws from `random`, which Hypothesis notices
        thread.join()


def test_a_header_is_read_again(found: Collector, protocol: Protocol, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer one\n")
    exporter = exporting(found, protocol, "", {"authorization": HeaderFile(token)})
    token.write_text("Bearer second\n")
    exporter.export(traced())
    exporter.close()
    assert found.headers["authorization"] == "Bearer second"
