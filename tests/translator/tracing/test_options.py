"""The options of traces, and what they take from the environment."""

from __future__ import annotations

from typing import Any

import pytest

from interlingua.translator.config import tracing as config
from interlingua.translator.config.loader import parse
from interlingua.translator.config.tracing import TracingOptions
from interlingua.translator.tracing.build import endpoint, shown

LISTENERS = "listeners: [{listen: ':0', transport: http}]\n"


def options(text: str) -> TracingOptions:
    found = parse(f"{LISTENERS}tracing: {text}\n").tracing
    assert found is not None
    return found


def errors(text: str) -> str:
    with pytest.raises(Exception) as caught:
        options(text)
    return str(caught.value)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options("{}")
    assert (found.sample, found.otlp, found.enabled) == (0.01, None, True)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not options("{}").enabled


@pytest.mark.parametrize(
    ("sampler", "argument", "share"),
    [
        ("parentbased_traceidratio", "0.25", 0.25),
        ("traceidratio", "0.5", 0.5),
        ("traceidratio", "", 1.0),
        ("always_on", "", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("", "0.5", 0.01),
    ],
)
def test_the_sampler_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, share: float
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    assert options("{}").sample == share
    assert options("{sample: 0.75}").sample == 0.75


def test_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoint(None) == "http://localhost:4318/v1/traces"
    assert endpoint("https://c:4318/") == endpoint("https://c:4318/v1/traces") == "https://c:4318/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:1")
    assert endpoint(None) == "http://base:1/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:2/here")
    assert endpoint(None) == "http://own:2/here"
    assert endpoint("http://stated:3") == "http://stated:3/v1/traces"


def test_the_collector_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoint(None, "grpc") == "http://localhost:4317"
    assert endpoint("https://c:4317", "grpc") == "https://c:4317"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:1")
    assert endpoint(None, "grpc") == "http://base:1"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:2")
    assert endpoint(None, "grpc") == "http://own:2"


def test_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options("{}").protocol == "http/protobuf"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert options("{}").protocol == "grpc"
    assert options("{protocol: http/protobuf}").protocol == "http/protobuf"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    assert options("{}").protocol == "http/protobuf"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
    assert "tracing.protocol: unknown value 'http/json'" in errors("{}")


def test_clients_see_no_credentials() -> None:
    assert shown("http://user:secret@c:1/v1/traces", "s")["url"] == ("http://c:1/v1/traces",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{otlp: 'localhost:4317'}", "'localhost:4317' is not an http:// or https:// URL"),
        ("{otlp: 'http://u:p@c'}", "credentials belong in headers"),
        ("{sample: 1.5}", "tracing.sample"),
        ("{protocol: grpc, otlp: 'http://c:4317/v1/traces'}", "has a path, which OTLP over gRPC has not"),
        ("{headers: {traceparent: {file: x}}}", "'traceparent' is the caller's"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    assert said in errors(text)


def test_the_queue_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.queue_sizes() == (2048, 512)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    assert config.queue_sizes() == (100, 100)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    assert "OTEL_BSP_MAX_QUEUE_SIZE must be a positive number, got 'many'" in errors("{}")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(config, "find_spec", absent)
    assert "tracing: needs the extra 'otlp': pip install 'interlingua[otlp]'" in errors("{}")
