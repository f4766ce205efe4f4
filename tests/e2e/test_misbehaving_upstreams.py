"""A whole daemon with upstreams that misbehave: typed errors in time, and a loop that goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import HttpCall
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Tensor,
)
from tests.e2e.daemon import Daemon
from tests.misbehaving import MISBEHAVING
from tests.misbehaving.server import DEADLINE_SECS, LIMIT, Server

SLACK_SECS = 20.0
"""What a busy machine may add."""

LAG_SECS = 3.0
"""The longest that a health check may take, on a busy machine; the true time is printed."""

GROWTH_MEBIBYTES = 96
DIALECT = {"http": "oip", "grpc": "oip", "brpc": "grps", "tcp": "graphpipe"}
SIGNATURE = {side: [{"name": "X", "datatype": "FP32", "shape": [-1]}] for side in ("inputs", "outputs")}

CASES = {
    "http": [
        "endless 100 Continue",
        "a flood of headers",
        "a claim of 2 GiB",
        "endless chunks",
        "endless chunks of one byte",
        "trailers without end",
        "a gzip bomb",
        "an answer that drips",
        "endless answers",
        "garbage",
    ],
    "grpc": [
        "endless pings",
        "endless settings",
        "endless goaways",
        "endless resets",
        "endless refusals",
        "endless continuations",
        "endless window updates",
        "a header bomb",
        "a gzip bomb",
        "an endless message",
        "a window that overflows",
        "a message in frames of one byte",
    ],
    "brpc": [
        "replies to unknown calls",
        "endless empty frames",
        "an endless reply",
        "a gzip bomb",
        "a claim of 2 GiB of meta",
    ],
    "tcp": ["garbage", "an endless message", "endless messages of one byte", "a message that drips"],
}
NAMED = {
    f"{transport}-{place}": (transport, name)
    for transport, names in CASES.items()
    for place, name in enumerate(names)
}


def configuration(servers: dict[str, Server]) -> dict[str, Any]:
    """A model per server, and the one that is not remote."""
    models: dict[str, Any] = {"local": {"backend": "identity", "signature": SIGNATURE}}
    upstreams = {}
    for model, (transport, _) in NAMED.items():
        models[model] = {
            "upstream": model,
            "remote_model": "" if transport == "tcp" else "X",
            "signature": SIGNATURE,
        }
        upstreams[model] = {
            "dialect": DIALECT[transport],
            "transport": transport,
            "urls": [servers[model].url],
            "request_timeout_secs": DEADLINE_SECS,
            "probe_interval_secs": 0,
            "max_response_bytes": LIMIT,
        }
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc")]
    return {"listeners": listeners, "models": models, "upstreams": upstreams}


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Daemon]:
    async with AsyncExitStack() as stack:
        servers = {}
        for model, (transport, name) in NAMED.items():
            session, table = MISBEHAVING[transport]
            servers[model] = Server(session, table[name][0], every=True)
            stack.push_async_callback(asyncio.to_thread, servers[model].close)
        daemon = await asyncio.to_thread(Daemon.start, folder, configuration(servers))
        stack.push_async_callback(asyncio.to_thread, daemon.kill)
        yield daemon


async def infer(client: Any, transport: str, model: str) -> ErrorCode | None:
    """The code of the error that the daemon gives; None for an answer."""
    tensor = Tensor("X", Datatype.FP32, (2,), memoryview(np.float32([1, 2]).tobytes()))
    call = DIALECTS["oip"].bindings[transport].calls[Operation.INFER]
    request, form = call.encode(InferRequest(model, (tensor,)), None)
    request = replace(request, context=Context(deadline=time.monotonic() + 30))
    try:
        call.decode(form, await client.send(request))
    except InferenceError as error:
        return error.code
    return None


async def lags(client: Any, found: list[float]) -> None:
    """How long a health check takes, over and over."""
    while True:
        began = time.monotonic()
        call = HttpCall("GET", "/v2/health/live", context=Context(deadline=began + 30))
        assert (await client.send(call)).status == 200
        found.append(time.monotonic() - began)
        await asyncio.sleep(0.005)


def resident_mebibytes(daemon: Daemon) -> float:
    return int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]) / 256


async def test_errors_are_typed_and_the_loop_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as daemon:
        clients: dict[str, Any] = {
            transport: CLIENTS[transport, "native"](parse_url(address))
            for transport, address in zip(("http", "grpc"), daemon.addresses, strict=True)
        }
        assert [await infer(client, each, "local") for each, client in clients.items()] == [None, None]
        before, checks = resident_mebibytes(daemon), [0.0]
        checking = asyncio.create_task(lags(clients["http"], checks))
        for model, case in NAMED.items():
            began = time.monotonic()
            codes = await asyncio.gather(*(infer(client, each, model) for each, client in clients.items()))
            assert not {None, ErrorCode.INTERNAL} & set(codes), (case, codes)
            assert time.monotonic() - began < DEADLINE_SECS + SLACK_SECS, case
        assert not checking.done()
        checking.cancel()
        grown = resident_mebibytes(daemon) - before
        print(f"{len(checks)} health checks, the slowest {1000 * max(checks):.0f} ms; {grown:.1f} MiB more")
        assert max(checks) < LAG_SECS
        assert grown < GROWTH_MEBIBYTES
        assert [await infer(client, each, "local") for each, client in clients.items()] == [None, None]
        for client in clients.values():
            await client.close()
        assert await asyncio.to_thread(daemon.stop) == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
