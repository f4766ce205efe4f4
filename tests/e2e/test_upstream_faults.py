"""Upstream servers that fail in every way, under fifty callers at once.

Whatever happens there, every caller has the right answer or an error of a known kind in time; nothing that may have
run is asked twice; what recovers is used again by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from aiohttp import web

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.schemas import Context, Datatype, ErrorCode, InferenceError, InferRequest, Operation, Tensor
from tests.e2e.daemon import Daemon
from tests.e2e.relay import FAULTS, Relay
from tests.standins import oip_grpc_server, oip_http_server
from tests.standins.framed import GraphPipeTcpServer
from tests.standins.grps_brpc import BrpcServing
from tests.standins.grps_contract import arrays_of
from tests.standins.grps_server import GrpsServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLERS = 50
PAUSE_SECS = 0.2
"""Between two questions of a caller: servers, relays and the daemon must keep up on a slow machine too."""

PROBE_SECS = 0.5
TIMEOUT_SECS = 1.0
SLACK_SECS = 20.0
"""What a busy machine may add."""

TYPED = (502, 503, 504)
MODELS = ("alone", "pair")
SIGNATURE = {
    side: [{"name": name, "datatype": "FP32", "shape": [-1]}]
    for side, name in (("inputs", "INPUT0"), ("outputs", "INPUT0"))
}


@dataclass
class Standin:
    """A server that gives back a number, and a relay before it; ``executed`` are the numbers it was asked."""

    executed: Callable[[], list[int]]
    relay: Relay


@dataclass
class Peer:
    """Calls a model of the daemon in the upstream's own dialect and transport, so that messages pass through
    where they can."""

    client: Any
    call: UpstreamCall[Any, Any]
    model: str

    async def ask(self, number: int) -> int:
        """The status, as HTTP would have it."""
        tensor = Tensor("INPUT0", Datatype.FP32, (1,), memoryview(np.float32(number).tobytes()))
        request, form = self.call.encode(InferRequest(self.model, (tensor,)), None)
        request = replace(request, context=Context(deadline=time.monotonic() + 30))
        try:
            answer = self.call.decode(form, await self.client.send(request))
        except InferenceError as error:
            # the server's own refusal of a call that is late passes through
            late = error.code is ErrorCode.DEADLINE_EXCEEDED
            return 502 if late or "upstream" in error.message else 500
        assert [bytes(each.data) for each in answer.outputs] == [np.float32(number).tobytes()]
        return 200


@dataclass
class World:
    """The daemon's address, and the servers behind it: ``alone`` has the first alone, ``pair`` both."""

    url: str
    standins: list[Standin]
    outputs: str
    session: aiohttp.ClientSession
    peers: dict[str, Peer]
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


@dataclass
class Said:
    """What a caller was told."""

    model: str
    number: int
    status: int
    began: float
    took: float


def numbers_of(raw: list[bytes]) -> list[int]:
    return [int(np.frombuffer(each, np.float32)[0]) for each in raw]


@asynccontextmanager
async def over_http() -> AsyncIterator[tuple[int, Callable[[], list[int]]]]:
    seen = oip_http_server.Seen()
    runner = web.AppRunner(oip_http_server.oip_http_server(seen))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], lambda: numbers_of([tail for _, tail in seen.requests])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def over_grpc() -> AsyncIterator[tuple[int, Callable[[], list[int]]]]:
    seen = oip_grpc_server.Seen()
    server, port = await oip_grpc_server.start(seen)
    try:
        yield port, lambda: numbers_of([request.raw_input_contents[0] for request in seen.requests])
    finally:
        await server.stop(None)


@asynccontextmanager
async def over_brpc() -> AsyncIterator[tuple[int, Callable[[], list[int]]]]:
    server = GrpsServer("py", online={"brpc": True})
    serving = BrpcServing(server)
    try:
        yield (
            await serving.start(),
            lambda: [int(array[0]) for message in server.seen for array in arrays_of(message).values()],
        )
    finally:
        await serving.stop()


@asynccontextmanager
async def over_tcp() -> AsyncIterator[tuple[int, Callable[[], list[int]]]]:
    server = GraphPipeTcpServer((["INPUT0"], ["INPUT0"]))
    async with server.running():
        yield server.port, lambda: [int(asked.input_tensors[0][0]) for asked in server.requests]


SERVERS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "http": ("oip", over_http, {"remote_model": "identity"}),
    "grpc": ("oip", over_grpc, {"remote_model": "identity_fp32"}),
    "brpc": ("grps", over_brpc, {"remote_model": "", "signature": SIGNATURE}),
    "tcp": ("graphpipe", over_tcp, {"signature": SIGNATURE}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=CLIENTS, ids="-".join)
async def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    transport, engine = request.param
    dialect, serving, model = SERVERS[transport]
    async with AsyncExitStack() as stack:
        standins = []
        for _ in range(2):
            port, executed = await stack.enter_async_context(serving())
            relay = Relay(port)
            await relay.start()
            stack.push_async_callback(relay.stop)
            standins.append(Standin(executed, relay))
        urls = [f"127.0.0.1:{each.relay.port}" for each in standins]
        options = {
            "dialect": dialect,
            "transport": transport,
            "connect_timeout_secs": 0.5,
            "request_timeout_secs": TIMEOUT_SECS,
            "probe_interval_secs": PROBE_SECS,
        }
        if transport in ("http", "grpc"):
            options["engine"] = engine
        beside = [{"listen": "127.0.0.1:0", "transport": transport} for _ in MODELS]
        if transport == "tcp":
            beside = [{**each, "default_model": name} for each, name in zip(beside, MODELS, strict=True)]
        config = {
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}, *beside],
            "models": {name: {"upstream": name, **model} for name in MODELS},
            "upstreams": {"alone": {**options, "urls": urls[:1]}, "pair": {**options, "urls": urls}},
        }
        folder = tmp_path_factory.mktemp(f"faults_{transport}_{engine}")
        daemon = await asyncio.to_thread(Daemon.start, folder, config)
        try:
            session = await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
            )
            peers = {}
            for name, address in zip(MODELS, daemon.addresses[1:], strict=True):
                client: Any = CLIENTS[transport, "native"](parse_url(address, transport))
                stack.push_async_callback(client.close)
                call = DIALECTS[dialect].bindings[transport].calls[Operation.INFER]
                peers[name] = Peer(client, call, "" if transport == "tcp" else name)
            outputs = "OUTPUT0" if dialect == "oip" else "INPUT0"
            yield World(daemon.addresses[0], standins, outputs, session, peers)
            assert await asyncio.to_thread(daemon.stop) == 0
            assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
        finally:
            await asyncio.to_thread(daemon.kill)


async def ask(world: World, model: str, *, as_peer: bool) -> Said:
    """One question, in JSON or as the upstream's peer; fails on an answer that is wrong, late, or an error of no
    known kind."""
    number, began = next(world.numbers), time.monotonic()
    if as_peer:
        status = await world.peers[model].ask(number)
        took = time.monotonic() - began
        assert took < TIMEOUT_SECS + SLACK_SECS, (model, took, status)
        assert status in (200, 502), (model, number)
        return Said(model, number, status, began, took)
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [number]}
    url = f"http://{world.url}/v2/models/{model}/infer"
    async with world.session.post(url, json={"inputs": [tensor]}) as answer:
        said = await answer.json()
    took = time.monotonic() - began
    assert took < TIMEOUT_SECS + SLACK_SECS, (model, took, said)
    if answer.status == 200:
        assert [(each["name"], each["data"]) for each in said["outputs"]] == [(world.outputs, [number])]
    else:
        assert answer.status in TYPED and "upstream" in said["error"], (answer.status, said)
    return Said(model, number, answer.status, began, took)


class Traffic:
    """Fifty callers, half of each model, half of them peers, until the block ends; ``told`` is what they were
    told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.told: list[Said] = []

    async def __aenter__(self) -> Traffic:
        self._callers = [
            asyncio.ensure_future(self._call("alone" if place % 2 else "pair", place % 4 > 1))
            for place in range(CALLERS)
        ]
        return self

    async def __aexit__(self, *error: object) -> None:
        for caller in self._callers:
            caller.cancel()
        ended = await asyncio.gather(*self._callers, return_exceptions=True)
        for each in ended:
            if not isinstance(each, asyncio.CancelledError):
                raise AssertionError(each) from (each if isinstance(each, Exception) else None)

    async def _call(self, model: str, as_peer: bool) -> None:
        while True:
            self.told.append(await ask(self._world, model, as_peer=as_peer))
            await asyncio.sleep(PAUSE_SECS)

    def statuses(self, model: str, since: float = 0.0) -> Counter[int]:
        return Counter(each.status for each in self.told if each.model == model and each.began >= since)

    async def until(self, condition: Callable[[], bool], seconds: float) -> float:
        """How long it takes until ``condition`` holds."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds, self.statuses("alone", began)
            await asyncio.sleep(0.01)
        return time.monotonic() - began


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault(world: World, fault: str) -> None:
    failing, staying = world.standins
    async with Traffic(world) as traffic:
        await traffic.until(lambda: traffic.statuses("alone")[200] >= 25, SLACK_SECS)
        await failing.relay.fail(fault)
        began = time.monotonic()
        await asyncio.sleep(TIMEOUT_SECS + 0.4)
        await traffic.until(lambda: traffic.statuses("pair", began)[200] > 25, SLACK_SECS)
        alone, pair = (traffic.statuses(model, began) for model in ("alone", "pair"))
        executed = len(staying.executed())
        await failing.relay.recover()
        recovered, before = time.monotonic(), len(failing.executed())

        def back() -> bool:
            pairs = {each.number for each in traffic.told if each.model == "pair" and each.status == 200}
            return traffic.statuses("alone", recovered)[200] >= 25 and bool(
                pairs & set(failing.executed()[before:])
            )

        took = await traffic.until(back, PROBE_SECS + TIMEOUT_SECS + SLACK_SECS)
        settled = time.monotonic()
        await traffic.until(lambda: all(len(traffic.statuses(each, settled)) for each in MODELS), SLACK_SECS)
        assert set(traffic.statuses("alone", settled)) == set(traffic.statuses("pair", settled)) == {200}
    assert took < PROBE_SECS + SLACK_SECS
    if fault != "restarted":
        # half of what a connection carries may hold a whole answer or two
        assert sum(alone.values()) > alone[200] and (fault == "resetting" or not alone[200]), alone
    # one server of two is enough
    assert pair[200] > 25 and executed > 0, (alone, pair)
    print(f"{fault}: alone {dict(alone)}, pair {dict(pair)}, back after {took:.2f} s")
    ran = Counter(failing.executed() + staying.executed())
    assert not [number for number, times in ran.items() if times > 1]
    assert {each.number for each in traffic.told if each.status == 200} <= ran.keys()
