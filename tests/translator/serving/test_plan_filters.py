"""What happens around requests that follow plans, held against the same requests without plans: credentials,
routes, traces, header parameters, the access log, limits of clients."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import pytest
import yaml

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.schemas.trace import Trace
from interlingua.translator.access import clients
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.serving.plans.cache import PlanCache
from interlingua.translator.serving.routing import split
from interlingua.translator.tracing.settings import TraceBook
from interlingua.translator.tracing.tracer import Tracer
from tests.translator.serving.test_forward_plans import TENSORS, Standin, request
from tests.translator.serving.test_forward_plans_spliced import trtis

GRAPHPIPE = {"dialects": ["graphpipe"], "default_model": "m"}
TRACE = "00-%032x-00f067aa0ba902b7-%02x"


@dataclass
class Scenario:
    """``numbered`` makes the headers of each request, ``config`` what differs from the plain configuration;
    of ``count`` requests at least ``planned`` follow a plan, or none if that is 0."""

    numbered: Callable[[int], str] = lambda number: ""
    config: Mapping[str, Any] = field(default_factory=dict)
    listener: Mapping[str, Any] = field(default_factory=dict)
    planned: int = 8
    count: int = 20
    sampling: float | None = None
    rate: int = 0


def _traced(flags: int) -> Callable[[int], str]:
    return lambda number: (
        f"x-request-id: request-{number}\r\ntraceparent: {TRACE % (number + 1, flags)}\r\nbaggage: n={number}\r\n"
    )


def _routes(*routes: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"routes": list(routes)}


_TOKENS = {"auth": {"tokens": "TOKENS"}}

SCENARIOS: dict[str, Scenario] = {
    "nothing": Scenario(),
    "unique trace headers": Scenario(_traced(0)),
    "an unknown header that differs": Scenario(lambda number: f"x-other: {number}\r\n"),
    "an empty request id": Scenario(lambda number: "x-request-id:\r\n"),
    "an access log of all": Scenario(_traced(0), {"server": {"access_log": "all"}}),
    "tracing, unsampled": Scenario(_traced(0), sampling=1.0),
    "tracing, a part": Scenario(sampling=0.1, rate=10),
    "tracing, sampled": Scenario(_traced(1), sampling=0.0, planned=0),
    "an unrelated route": Scenario(config=_routes({"match": {"model": "other"}, "to": "m"})),
    "a route of a header": Scenario(
        lambda number: f"x-canary: {number % 2}\r\n",
        _routes({"match": {"model": "m", "headers": {"x-canary": "1"}}, "to": "n"}),
    ),
    "a split": Scenario(
        config=_routes(
            {"match": {"model": "m"}, "split": [{"to": "m", "weight": 90}, {"to": "n", "weight": 10}]}
        ),
        count=80,
    ),
    "a route with a fallback": Scenario(
        config=_routes({"match": {"model": "m"}, "to": "n", "fallback": "m"}), planned=0
    ),
    "header parameters of other names": Scenario(listener={"headers_as_parameters": "x-param.*"}),
    "header parameters": Scenario(
        lambda number: f"x-param: {number}\r\n", listener={"headers_as_parameters": "x-param.*"}, planned=0
    ),
    "a token": Scenario(lambda number: "authorization: Bearer secret\r\n", _TOKENS),
    "a token that is required": Scenario(
        lambda number: "authorization: Bearer secret\r\n" if number % 3 else "",
        _TOKENS,
        {"allow": {"inference": ["user:*"]}},
    ),
    "limits of a client": Scenario(
        lambda number: "authorization: Bearer secret\r\n",
        {"auth": {"tokens": "TOKENS", "limits": {"*": {"max_requests": 2, "requests_per_sec": 15.0}}}},
        planned=4,
    ),
    "tokens of two": Scenario(
        lambda number: f"authorization: Bearer {('secret', 'other')[number % 2]}\r\n", _TOKENS
    ),
    "a wrong token": Scenario(
        lambda number: f"authorization: Bearer {'secret' if number % 3 else 'wrong'}\r\n", _TOKENS
    ),
    "a restricted listener": Scenario(
        lambda number: f"x-key: {'k' if number % 3 else 'wrong'}\r\n",
        listener={"allow": {"inference": ["key:x-key=KEY"]}},
    ),
    "everything": Scenario(
        lambda number: _traced(0)(number) + "authorization: Bearer secret\r\n",
        {"server": {"access_log": "all"}, **_routes({"match": {"model": "other"}, "to": "m"}), **_TOKENS},
        sampling=0.01,
    ),
}

_MESSAGES: dict[str, Callable[[float, str], bytes]] = {
    "oip": lambda number, more: request(number, more=more),
    "trtis": lambda number, more: trtis(number).replace(b"Host: here\r\n", f"Host: here\r\n{more}".encode()),
}


async def _answers(
    scenario: Scenario, dialect: str, target: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What callers get, what the upstream sees, and everything that is counted and logged."""
    monkeypatch.setattr(split.secrets, "randbits", lambda _: 1)
    monkeypatch.setattr(clients, "monotonic_ns", lambda: 1)
    log = folder / "access.log"
    log.unlink(missing_ok=True)
    there = Standin()
    standin = await asyncio.start_server(there.serve, "127.0.0.1", 0)
    port = standin.sockets[0].getsockname()[1]
    remote = {"upstream": "there", "remote_model": "m", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
    local = {"backend": "identity", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
    model = remote if target == "upstream" else local
    config = {
        "server": {"access_log_file": str(log), **scenario.config.get("server", {})},
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http", "dialects": [dialect], **scenario.listener}
        ],
        "upstreams": {
            "there": {
                "dialect": "oip",
                "transport": "http",
                "urls": [f"127.0.0.1:{port}"],
                "flavor": "triton",
            }
        },
        "models": {"m": model, "n": model},
        **{key: value for key, value in scenario.config.items() if key != "server"},
    }
    text = (
        yaml.safe_dump(config).replace("TOKENS", str(folder / "tokens")).replace("KEY", str(folder / "key"))
    )
    options = parse(text)
    planned: list[bool] = []
    execute = PlanCache.execute

    def spied(cache: Any, *arguments: Any) -> Any:
        found = execute(cache, *arguments)
        planned.append(found is not None)
        return found

    monkeypatch.setattr(PlanCache, "execute", spied)
    async with AsyncExitStack() as stack:
        assembly = assemble(options, load_local(options))
        stack.push_async_callback(assembly.close)
        service, traces = assembly.service, list[Trace]()
        if scenario.sampling is not None:
            service.traces = TraceBook(scenario.sampling)
            if scenario.rate:
                service.traces.change("", {"trace_rate": (str(scenario.rate),)})
            service.tracer = Tracer(service.traces, traces.append)
        pipeline = assembly.pipeline(options.listeners[0])
        server = HttpServer(pipeline.handlers["http"], parse_address("127.0.0.1:0"), load=pipeline.load)
        address = await server.start()
        stack.push_async_callback(server.stop, 0)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        stack.callback(writer.close)
        responses = []
        for number in range(scenario.count):
            more = scenario.numbered(number)
            writer.write(_MESSAGES[dialect](number, more))
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = re.findall(rb"(?i)\r\ncontent-length: (\d+)", head)
            body = await reader.readexactly(int(length))
            responses.append((re.sub(rb"dur=[0-9.]+", b"dur=", head), body))
            if b" 200 " in head[:20]:
                assert np.float32(number).tobytes() in body
        metrics = pipeline.request_metrics[dialect]
        models = {name: service.router.models[name] for name in ("m", "n")}
        found = {
            "responses": responses,
            "seen": [
                re.sub(rb"(?!0000)[0-9a-f]{32}-[0-9a-f]{16}|(?<=-)[0-9a-f]{16}(?=-)", b"new", each)
                for each in there.seen
            ],
            "ended": dict(metrics.ended),
            "flows": {key: (sum(flow.counts), flow.failed) for key, flow in metrics.flows.items()},
            "bytes": (metrics.received_bytes, metrics.sent_bytes, metrics.in_flight),
            "stages": {key: sum(each.counts) for key, each in metrics.stages.items()},
            "models": {
                name: {version: each.inference_count for version, each in model.statistics.items()}
                for name, model in models.items()
            },
            "clients": dict(pipeline._processor.clients.ended),
            "routes": [route.counts for route in service.router.routes],
            "traces": [len(trace.spans) for trace in traces],
            "numbers": next(service.numbers),
            "trend": len(service.trends.counts().latencies_ns),
        }
    standin.close()
    service.access.close()
    found["log"] = [_record(line) for line in log.read_bytes().splitlines()] if log.exists() else []
    monkeypatch.undo()
    return {**found, "planned": sum(planned)}


def _record(line: bytes) -> dict[str, Any]:
    """A record of the access log, without times: of each, whether it is there."""
    record = cast("dict[str, Any]", orjson.loads(line))
    return {key: None if key == "time" or key.endswith("_us") else value for key, value in record.items()}


@pytest.mark.parametrize("target", ["upstream", "local"])
@pytest.mark.parametrize("dialect", _MESSAGES)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_requests_with_plans_are_as_without(
    name: str, dialect: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f"{name}: sha256:{hashlib.sha256(token).hexdigest()}\n"
        for name, token in (("alice", b"secret"), ("bob", b"other"))
    ]
    (tmp_path / "tokens").write_text("".join(lines))
    (tmp_path / "key").write_text("k")
    scenario = SCENARIOS[name]
    found = await _answers(scenario, dialect, target, tmp_path, monkeypatch)
    assert found.pop("planned") >= scenario.planned
    plain = {**scenario.config.get("server", {}), "plans": False}
    without = replace(scenario, config={**scenario.config, "server": plain})
    expected = await _answers(without, dialect, target, tmp_path, monkeypatch)
    assert expected.pop("planned") == 0
    for key, value in expected.items():
        assert found[key] == value, key
