"""Collectors for OTLP over HTTP and gRPC: they parse what they receive with the messages of
``opentelemetry-proto``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

KINDS = {SpanMessage.SPAN_KIND_SERVER: "server", SpanMessage.SPAN_KIND_CLIENT: "client"}


@dataclass(frozen=True)
class Received:
    """A span; ids are in hexadecimal, empty for none."""

    service: str
    instance: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    began: int
    ended: int
    attributes: dict[str, Any]
    error: str | None


@dataclass
class Collector:
    """``headers`` are those of the last export, ``path`` its path; with ``status`` every export gets that
    answer, over gRPC INVALID_ARGUMENT."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    path: str = ""
    status: int = 200

    def trace(self, trace_id: str) -> list[Received]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_received(about, span) for span in scope.spans]


def _received(about: dict[str, str], span: Any) -> Received:
    values = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
    return Received(
        about["service.name"],
        about["service.instance.id"],
        span.name,
        KINDS.get(span.kind, "internal"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        values,
        span.status.message if span.status.code == 2 else None,
    )


@contextmanager
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.path = self.path
            found.headers = {name.lower(): value for name, value in self.headers.items()}
            if found.status == 200 and self.path == "/v1/traces":
                found.take(body)
            self.send_response(found.status if self.path == "/v1/traces" else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class _TraceService(grpc.GenericRpcHandler):
    def __init__(self, found: Collector) -> None:
        self._found = found

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        if call.method != EXPORT:
            return None
        return grpc.unary_unary_rpc_method_handler(self._export)

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        found = self._found
        found.path, found.headers = EXPORT, dict(context.invocation_metadata())
        if found.status != 200:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")
        found.take(body)
        return ExportTraceServiceResponse().SerializeToString()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """The same over gRPC, by grpcio."""
    found = Collector()
    server = grpc.server(ThreadPoolExecutor(4), handlers=(_TraceService(found),))
    found.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield found
    finally:
        server.stop(0).wait()
