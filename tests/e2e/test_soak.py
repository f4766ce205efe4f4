"""Traffic at full rate between all dialects and transports, with errors, cancelled calls, loads and unloads, shared
memory, reloads of the configuration and hostile connections: nothing may grow.

``SOAK_SECS`` is the time (``make soak``), ``SOAK_PLOT`` a file for the plot of the samples.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import ConnectionFailedError, HttpCall
from interlingua.schemas import Context, Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec
from tests.e2e.daemon import ROOT, Daemon
from tests.e2e.soak import disturbances
from tests.e2e.soak.plot import svg
from tests.e2e.soak.samples import LEAST_SECS, WARM, Gate, Samples, growth, limits, warm_secs, watch

SECS = float(os.environ.get("SOAK_SECS", "6"))
PLOT = os.environ.get("SOAK_PLOT", "")
SAMPLES = round(min(max(SECS / 3, 10), 180))

WARMS_UP = SECS >= LEAST_SECS
"""Whether there is time to warm up first."""

ATTACK_SECS = min(1.0, SECS / 300)
"""The time of an attack, and of the pause after it."""

ERROR_PACE_SECS = min(0.02, SECS / 6000)
RELOAD_PACE_SECS = min(1.0, SECS / 60)
RELOADING_SECS = SECS if SECS >= LEAST_SECS else WARM * SECS
"""A short soak has too few samples for the pools of clients that connect again after a reload."""

DRAIN_SECS = 0.5
"""How long clients of a replaced listener may leave a connection idle before it closes."""

LOCAL = ("identity_fp32", "identity_bytes", "simple", "simple_string")
"""Models that the daemon has itself, for bad inputs and shared memory."""

LOADED = "identity_fp64"
"""A model that is loaded and unloaded."""

WARNINGS = {"request", "stream", "privileged operation", "model status unavailable"}
"""Events of the log: requests and streams with errors in the access log, refused loads and registrations in the audit log, and
upstreams too busy for an index."""

LATE, MAX_LATE = "late connections", 0.01
"""Attacks and a busy machine may delay a connection beyond the limit of its client, which has sent nothing then: the
most, as a share of the requests."""

DEADLINE_SECS = 60.0
SIZES = (64, 4096, 65_536, 64, 64, 4096, 1 << 20)
TRANSPORTS = ("http", "grpc", "brpc", "tcp")
PAIRS = [(name, transport) for name, dialect in DIALECTS.items() for transport in dialect.bindings]
TEXTS, LARGEST_TEXT = {("grps", "http"), ("tfserving", "http")}, 4096
"""What writes numbers as text, and how many bytes of numbers it gets, so that it does not take all the time."""

SPECS = (TensorSpec("X", Datatype.FP32, (-1, -1)),)
SIGNATURE = {side: [{"name": "X", "datatype": "FP32", "shape": [-1, -1]}] for side in ("inputs", "outputs")}


def listeners(*default_models: str) -> list[dict[str, Any]]:
    """One of each transport; of tcp, where no request names a model, one for each of ``default_models``."""
    found: list[dict[str, Any]] = [
        {
            "listen": "127.0.0.1:0",
            "transport": transport,
            "dialects": [name for name, over in PAIRS if over == transport],
        }
        for transport in TRANSPORTS
        if transport != "tcp"
    ]
    return found + [
        {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": model} for model in default_models
    ]


KEPT = {"listen": "127.0.0.1:0", "transport": "http", "max_connections": 1000}
"""A listener that no reload replaces: its limit tells it from the other one over HTTP."""


def upstream() -> dict[str, Any]:
    return {"listeners": listeners("X"), "models": {"X": {"backend": "identity", "signature": SIGNATURE}}}


def bridge(addresses: list[str]) -> dict[str, Any]:
    """A model of each dialect over each transport, all at the same server."""
    models, upstreams = {}, {}
    for dialect, transport in PAIRS:
        name, url = f"{dialect}-{transport}", addresses[TRANSPORTS.index(transport)]
        upstreams[name] = {"dialect": dialect, "transport": transport, "urls": [url]}
        remote = "" if transport == "tcp" else "X"
        models[name] = {"upstream": name, "remote_model": remote, "signature": SIGNATURE}
    repository = {"path": str(ROOT / "examples" / "models"), "control": "explicit", "load": list(LOCAL)}
    return {
        "server": {"drain_secs": DRAIN_SECS},
        "listeners": [*listeners(*models), KEPT],
        "admin": {"listen": "127.0.0.1:0"},
        "model_repository": [repository],
        "models": models,
        "upstreams": upstreams,
    }


class Caller:
    """Sends one request to one model over and over; every answer must contain its numbers."""

    def __init__(self, client: Any, dialect: str, transport: str, model: str, size: int) -> None:
        # numbers of few digits, which every JSON encoder prints alike
        values = np.random.default_rng(size).integers(0, 1000, (1, size // 4)).astype(np.float32) / 4
        tensor = Tensor("X", Datatype.FP32, values.shape, memoryview(values.tobytes()))
        encode = DIALECTS[dialect].bindings[transport].calls[Operation.INFER].encode
        asked = InferRequest("" if transport == "tcp" else model, (tensor,))
        call: Any = encode(asked, Signature(SPECS, SPECS))[0]
        self._echoed = values.tobytes()
        if isinstance(call, HttpCall):
            body = b"".join(call.parts)
            call.path = f"/graphpipe/{model}" if dialect == "graphpipe" else call.path
            if (dialect, transport) in TEXTS:
                start = body.rindex(b"[")
                self._echoed = body[start : body.index(b"]", start)]
        self._call, self._client, self._text = call, client, (dialect, transport) in TEXTS
        self.name = f"{dialect} {transport} -> {model}"

    async def ask(self) -> None:
        context = Context(deadline=time.monotonic() + DEADLINE_SECS)
        answer = await self._client.send(replace(self._call, context=context))
        message = bytes(answer.body if isinstance(self._call, HttpCall) else answer.message)
        if self._text:
            message = b"".join(message.split())
        assert self._echoed in message, (self.name, message[:1000])


async def soak(daemon: Daemon, config: Path) -> tuple[Samples, Counter[str], Counter[str]]:
    """Every caller at once, one client of the daemon for each of its addresses, and all disturbances. ``config`` is the
    file of the daemon. Returns the samples, the answers by caller and the disturbances."""
    transports = [*TRANSPORTS, *("tcp" for _ in PAIRS[1:])]
    clients: list[Any] = [
        CLIENTS[transport, "native"](parse_url(address, transport))
        for transport, address in zip(transports, daemon.addresses[:-1], strict=True)
    ]
    callers: list[Caller] = []
    for dialect, transport in PAIRS:
        for place, target in enumerate(PAIRS):
            client = clients[TRANSPORTS.index(transport) + place * (transport == "tcp")]
            size = SIZES[(len(callers) + place) % len(SIZES)]
            if TEXTS & {(dialect, transport), target}:
                size = min(size, LARGEST_TEXT)
            callers.append(Caller(client, dialect, transport, "-".join(target), size))
    answered: Counter[str] = Counter()
    disturbed: Counter[str] = Counter()
    gate = Gate()

    async def run(caller: Caller) -> None:
        while not gate.over:
            await gate.opened()
            with gate.work():
                try:
                    await caller.ask()
                    answered[caller.name] += 1
                except ConnectionFailedError as error:
                    if error.sent:
                        raise
                    disturbed[LATE] += 1

    kept = daemon.addresses[-1]
    admin = daemon.until("admin listening")["address"]
    renew = disturbances.renewal(daemon, config) if WARMS_UP else None
    in_threads: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (disturbances.errors, (daemon, ERROR_PACE_SECS)),
        (disturbances.loads, (kept, LOADED)),
        (disturbances.shared_memory, (kept, "identity_fp32")),
        (disturbances.reloads, (daemon, config, RELOAD_PACE_SECS, RELOADING_SECS)),
        (disturbances.hostile, (daemon, ATTACK_SECS, ATTACK_SECS)),
    ]
    try:
        if WARMS_UP:
            await disturbances.warm_up(daemon, ATTACK_SECS)
        samples, *_ = await asyncio.gather(
            watch(daemon, admin, gate, SECS, SAMPLES, renew),
            disturbances.cancels([caller.ask for caller in callers], gate, disturbed),
            *(asyncio.to_thread(disturb, *given, gate, disturbed) for disturb, given in in_threads),
            *map(run, callers),
        )
    finally:
        gate.end()  # also after a failure
        await asyncio.gather(*(client.close() for client in clients))
    assert all(answered[caller.name] for caller in callers)
    return samples, answered, disturbed


async def test_nothing_grows(tmp_path: Path) -> None:
    folders = [tmp_path / "upstream", tmp_path / "bridge"]
    for folder in folders:
        folder.mkdir()
    server = await asyncio.to_thread(Daemon.start, folders[0], upstream())
    try:
        daemon = await asyncio.to_thread(Daemon.start, folders[1], bridge(server.addresses))
        try:
            samples, answered, disturbed = await soak(daemon, folders[1] / "config.yaml")
            assert await asyncio.to_thread(daemon.stop) == 0
            logged = {(line["level"], line["event"]) for line in daemon.log}
        finally:
            await asyncio.to_thread(daemon.kill)
    finally:
        await asyncio.to_thread(server.kill)
    grown = growth(samples)
    title = f"{answered.total():,} requests of {len(answered)} kinds in {SECS:g} s, with " + ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(disturbed.items())
    )
    print(f"{title}: growth " + ", ".join(f"{value:+.2f} {name}" for name, value in grown.items()))
    if PLOT:
        Path(PLOT).write_text(svg(title, samples, warm_secs(samples), grown))
    assert disturbed.pop(LATE, 0) <= MAX_LATE * answered.total()
    assert set(disturbed) == {"attacks", "cancels", "errors", "loads and unloads", "reloads", "shared memory"}
    assert {event for level, event in logged if level in ("warning", "error")} <= WARNINGS
    most = limits(SECS, answered.total())
    assert not {name: value for name, value in grown.items() if value >= most[name]}, (grown, most)
