"""The schema of traces, whose defaults come from the environment variables of OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from interlingua.protocols.section import Section, Text
from interlingua.translator.config.headers import HeaderOptions, OwnName

Protocol = Literal["http/protobuf", "grpc"]
"""The protocols of OTLP, by the names in the specification of its exporter."""

_MODULES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
_MODULES_OF_GRPC = (*_MODULES, "opentelemetry.exporter.otlp.proto.grpc")

SAMPLE = 0.01


class TracingOptions(Section):
    """Traces of requests for OpenTelemetry, exported over OTLP. Needs the extra `otlp`. The environment
    variables of OpenTelemetry apply where the file states nothing: `OTEL_EXPORTER_OTLP_ENDPOINT` and the
    others of the exporter, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, and
    `OTEL_BSP_MAX_QUEUE_SIZE` and the others of the queue. `OTEL_SDK_DISABLED=true` disables traces."""

    otlp: Text | None = None
    """The URL of the collector. Over HTTP `/v1/traces` is appended if it is missing; over gRPC `http` is
    without TLS. The default is that of the environment, or `http://localhost:4318`, over gRPC
    `http://localhost:4317`."""
    protocol: Protocol = "http/protobuf"
    """OTLP over HTTP, in protobuf, or over gRPC. The default is that of the environment, or
    `http/protobuf`."""
    sample: Annotated[float, Field(ge=0, le=1)] = Field(default=SAMPLE, validate_default=True)
    """The share of the requests to sample whose caller sends no `traceparent`; others are sampled if their
    caller has been. Clients may change it while the server runs, by Triton's trace settings. The default is
    that of the environment, or 0.01."""
    service_name: Text | None = None
    """The name of the service (`service.name`). The default is that of the environment, or `interlingua`."""
    headers: dict[OwnName, HeaderOptions] = Field(default={})
    """Headers to send to the collector, such as `authorization`, each with the `file` of its value."""

    @field_validator("otlp")
    @classmethod
    def _a_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"'{url}' is not an http:// or https:// URL")
            if parts.username is not None or parts.password is not None:
                raise ValueError("credentials belong in headers: the URL is visible in logs")
        return url

    @model_validator(mode="before")
    @classmethod
    def _of_the_environment(cls, stated: object) -> object:
        if not isinstance(stated, dict):
            return stated
        found = {"sample": _share(), "protocol": _protocol()}
        return {**{key: value for key, value in found.items() if value is not None}, **stated}

    @model_validator(mode="after")
    def _without_a_path(self) -> TracingOptions:
        if self.otlp is not None and self.protocol == "grpc" and urlsplit(self.otlp).path.strip("/"):
            raise ValueError(f"'{self.otlp}' has a path, which OTLP over gRPC has not")
        return self

    @model_validator(mode="after")
    def _installed(self) -> TracingOptions:
        if not _are_installed(_MODULES_OF_GRPC if self.protocol == "grpc" else _MODULES):
            raise ValueError("needs the extra 'otlp': pip install 'interlingua[otlp]'")
        return self

    @model_validator(mode="after")
    def _queue_of_the_environment(self) -> TracingOptions:
        queue_sizes()
        return self

    @property
    def enabled(self) -> bool:
        return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"


def queue_sizes() -> tuple[int, int]:
    """How many spans may wait for their export, and how many of them go at once. Raises ``ValueError`` for
    what the environment states."""
    sizes = []
    for name, usual in (("OTEL_BSP_MAX_QUEUE_SIZE", 2048), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)):
        stated = os.environ.get(name) or str(usual)
        if not stated.isascii() or not stated.isdigit() or not int(stated):
            raise ValueError(f"the environment variable {name} must be a positive number, got '{stated}'")
        sizes.append(int(stated))
    queue, batch = sizes
    return queue, min(queue, batch)


def _are_installed(modules: Iterable[str]) -> bool:
    try:
        return all(find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # of a package above
        return False


def _share() -> float | None:
    """The share that ``OTEL_TRACES_SAMPLER`` and its argument state; None without them."""
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_")
    if sampler == "traceidratio":
        return float(os.environ.get("OTEL_TRACES_SAMPLER_ARG") or 1.0)
    return {"always_on": 1.0, "always_off": 0.0}.get(sampler)


def _protocol() -> str | None:
    """The protocol that the environment states; None without one."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    return next((stated for name in names if (stated := os.environ.get(name))), None)
