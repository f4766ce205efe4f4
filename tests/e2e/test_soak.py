"""Traffic at full rate between all dialects and transports, over one set of connections: nothing may grow."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import HttpCall
from interlingua.schemas import Context, Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec
from tests.e2e.daemon import Daemon

SECS = float(os.environ.get("SOAK_SECS", "6"))
SAMPLES = 120
WARM = 0.4
"""The part of the time before which caches, pools and the allocator's arenas fill."""

GROWTH_MEBIBYTES, GROWTH_FILES = 16.0, 8.0
DEADLINE_SECS = 60.0
SIZES = (64, 4096, 65_536, 64, 64, 4096, 1 << 20)
TRANSPORTS = ("http", "grpc", "brpc", "tcp")
PAIRS = [(name, transport) for name, dialect in DIALECTS.items() for transport in dialect.bindings]
TEXT, LARGEST_TEXT = ("grps", "http"), 4096
"""What writes numbers as text, and how many bytes of numbers it gets, so that it does not take all the time."""

SPECS = (TensorSpec("X", Datatype.FP32, (-1, -1)),)
SIGNATURE = {side: [{"name": "X", "datatype": "FP32", "shape": [-1, -1]}] for side in ("inputs", "outputs")}


def listeners(*default_models: str) -> list[dict[str, Any]]:
    """One of each transport; of tcp, where no request names a model, one for each of ``default_models``."""
    found = [
        {"listen": "127.0.0.1:0", "transport": transport} for transport in TRANSPORTS if transport != "tcp"
    ]
    return found + [
        {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": model} for model in default_models
    ]


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
    return {"listeners": listeners(*models), "models": models, "upstreams": upstreams}


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
            if dialect == "grps":
                self._echoed = body[body.rindex(b"[") : body.rindex(b"]}]")]
        self._call, self._client, self._text = call, client, (dialect, transport) == TEXT
        self.name = f"{dialect} {transport} -> {model}"

    async def ask(self) -> None:
        context = Context(deadline=time.monotonic() + DEADLINE_SECS)
        answer = await self._client.send(replace(self._call, context=context))
        message = bytes(answer.body if isinstance(self._call, HttpCall) else answer.message)
        if self._text:
            message = b"".join(message.split())
        assert self._echoed in message, (self.name, message[:1000])


@dataclass(frozen=True)
class Sample:
    """What a process holds at one time."""

    secs: float
    files: int
    mebibytes: float


def sample(daemon: Daemon, began: float) -> Sample:
    process = Path("/proc") / str(daemon.process.pid)
    resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return Sample(time.monotonic() - began, len(list((process / "fd").iterdir())), resident / 2**20)


def growth(samples: list[Sample], what: str) -> float:
    """The slope of the least-squares line through the samples, times their duration."""
    secs = np.array([each.secs for each in samples])
    slope = np.polyfit(secs, [getattr(each, what) for each in samples], 1)[0]
    return float(slope * (secs[-1] - secs[0]))


async def soak(daemon: Daemon) -> tuple[list[Sample], Counter[str]]:
    """Every caller at once, one client of the daemon for each of its addresses."""
    transports = [*TRANSPORTS, *("tcp" for _ in PAIRS[1:])]
    clients: list[Any] = [
        CLIENTS[transport, "native"](parse_url(address, transport))
        for transport, address in zip(transports, daemon.addresses, strict=True)
    ]
    callers: list[Caller] = []
    for dialect, transport in PAIRS:
        for place, target in enumerate(PAIRS):
            client = clients[TRANSPORTS.index(transport) + place * (transport == "tcp")]
            size = SIZES[(len(callers) + place) % len(SIZES)]
            if TEXT in ((dialect, transport), target):
                size = min(size, LARGEST_TEXT)
            callers.append(Caller(client, dialect, transport, "-".join(target), size))
    answered: Counter[str] = Counter()
    began = time.monotonic()
    end = began + SECS

    async def run(caller: Caller) -> None:
        while time.monotonic() < end:
            await caller.ask()
            answered[caller.name] += 1

    samples: list[Sample] = []

    async def watch() -> None:
        while time.monotonic() < end:
            samples.append(sample(daemon, began))
            await asyncio.sleep(SECS / SAMPLES)

    try:
        await asyncio.gather(watch(), *map(run, callers))
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    assert all(answered[caller.name] for caller in callers)
    return samples, answered


async def test_nothing_grows(tmp_path: Path) -> None:
    folders = [tmp_path / "upstream", tmp_path / "bridge"]
    for folder in folders:
        folder.mkdir()
    server = await asyncio.to_thread(Daemon.start, folders[0], upstream())
    try:
        daemon = await asyncio.to_thread(Daemon.start, folders[1], bridge(server.addresses))
        try:
            samples, answered = await soak(daemon)
            assert await asyncio.to_thread(daemon.stop) == 0
            assert not [line for line in daemon.log if line["level"] in ("warning", "error")], daemon.log
        finally:
            await asyncio.to_thread(daemon.kill)
    finally:
        await asyncio.to_thread(server.kill)
    warm = [each for each in samples if each.secs > SECS * WARM]
    files, mebibytes = growth(warm, "files"), growth(warm, "mebibytes")
    print(
        f"{answered.total()} requests of {len(answered)} kinds in {SECS:g} s: {warm[0]} -> {warm[-1]}, ",
        end="",
    )
    print(f"growth {mebibytes:.2f} MiB, {files:.2f} descriptors")
    assert mebibytes < GROWTH_MEBIBYTES
    assert files < GROWTH_FILES
