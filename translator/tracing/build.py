"""The tracer of a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from interlingua.runtime.upstream.header_file import HeaderFile
from interlingua.schemas import TraceSettings
from interlingua.translator.config.tracing import Protocol, TracingOptions, queue_sizes
from interlingua.translator.tracing.settings import TraceBook
from interlingua.translator.tracing.tracer import Tracer

if TYPE_CHECKING:
    from interlingua.translator.tracing.exporter import Exporter

_COLLECTORS: Mapping[Protocol, str] = {
    "http/protobuf": "http://localhost:4318",
    "grpc": "http://localhost:4317",
}
_PATH = "/v1/traces"
"""The defaults of the specification of the OTLP exporter."""


def tracer_of(options: TracingOptions) -> tuple[TraceBook, Tracer, Exporter]:
    """The settings, the tracer that samples by them, and its exporter, which the caller closes."""
    # takes a while, and is an extra
    from interlingua.translator.tracing.exporter import Exporter

    headers = {name: HeaderFile(header.file) for name, header in options.headers.items()}
    url = endpoint(options.otlp, options.protocol)
    exporter = Exporter(url, options.service_name or "", headers, options.protocol)
    book = TraceBook(options.sample, shown(url, exporter.service))
    return book, Tracer(book, exporter.export), exporter


def endpoint(stated: str | None, protocol: Protocol = "http/protobuf") -> str:
    """The URL for traces at the collector ``stated``, or at that of the environment."""
    if stated is None and (exact := os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return exact
    url = stated or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _COLLECTORS[protocol]
    if protocol == "grpc":
        return url
    return url if url.endswith(_PATH) else f"{url.rstrip('/')}{_PATH}"


def shown(url: str, service: str) -> TraceSettings:
    """Further settings that Triton's clients see in this mode, by the names in ``--trace-config``."""
    parts, (queue, batch) = urlsplit(url), queue_sizes()
    return {
        # without credentials
        "url": (parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),),
        "resource": (f"service.name={service}",),
        "bsp_max_export_batch_size": (str(batch),),
        "bsp_max_queue_size": (str(queue),),
        "bsp_schedule_delay": (os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "5000"),),
    }
