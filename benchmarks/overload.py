"""``python -m benchmarks.overload``: requests at ten times the capacity, in every dialect.

The model takes a fixed time and runs on a fixed number of instances, so its capacity is known. Requests
arrive at a fixed rate, however long the answers take: half of the capacity, then ten times the capacity, then
half again. Accepted requests must take at most twice as long as before, the others must be refused as
overload in the form of their dialect, memory must stay within the configured limits, and a second after the
overload every request must be accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases
from benchmarks.processes import Server, daemon
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)

RUN_SECS, INSTANCES = 0.05, 2
CAPACITY = INSTANCES / RUN_SECS
"""Requests per second."""

OVERLOAD = 10
CALM_SHARE = 0.5
MAX_INFLIGHT_REQUESTS = INSTANCES + 1
ELEMENTS = 8192
MAX_INFLIGHT_BYTES = 4 * MAX_INFLIGHT_REQUESTS * 4 * ELEMENTS
"""Bodies in JSON and in typed contents of protobuf are larger than tensors."""

MAX_RATIO = 2.0
MAX_GROWN_MIB = 64.0
"""The limit on bodies, and buffers of 200 connections of 256 KiB each."""

NORMAL_SECS = 1.0
REFUSED = "refused"
"""As overload, in the form of the dialect: TRTIS v1 has UNAVAILABLE for it, all others a code of its own."""

CLIENTS_EACH = 3
_SAMPLE_SECS = 0.1

MODEL = """
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep({secs})
            given = pb.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            answers.append(pb.InferenceResponse([pb.Tensor("OUTPUT0", given)]))
        return answers
"""
MODEL_CONFIG = """
backend: "python"
instance_group {{ count: {instances} kind: KIND_CPU }}
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
"""
SIGNATURE = Signature(
    (TensorSpec("INPUT0", Datatype.FP32, (-1,)),), (TensorSpec("OUTPUT0", Datatype.FP32, (-1,)),)
)


@dataclass
class Phase:
    """What happened to the requests of a phase: times of accepted ones in seconds, outcomes of each way."""

    began: float = 0.0
    accepted: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    by_way: dict[str, Counter[str]] = field(default_factory=dict)
    last_refused: float = 0.0

    @property
    def p50_ms(self) -> float:
        """The median of accepted requests."""
        return 1e3 * statistics.median(self.accepted) if self.accepted else float("nan")


@dataclass
class Result:
    """Of the whole run; ``held_bytes`` is the most that bodies held at a time."""

    calm_ms: float
    overload_ms: float
    offered: int
    accepted: int
    refused: int
    others: dict[str, int]
    by_way: dict[str, dict[str, int]]
    held_requests: int
    held_bytes: int
    grown_mib: float
    normal_secs: float
    after: dict[str, int]

    @property
    def ratio(self) -> float:
        """How much longer accepted requests take under overload."""
        return self.overload_ms / self.calm_ms

    @property
    def misses(self) -> list[str]:
        """The targets that are missed, those of time last."""
        found = {
            "memory": self.grown_mib > MAX_GROWN_MIB or self.held_bytes > MAX_INFLIGHT_BYTES,
            "form of refusals": bool(self.others),
            "a way without an accepted or a refused request": any(
                len(each) < 2 for each in self.by_way.values()
            ),
            "after": set(self.after) != {"ok"},
            "p50": not self.ratio <= MAX_RATIO,
            "normal": self.normal_secs > NORMAL_SECS,
        }
        return [name for name, missed in found.items() if missed]


class Way:
    """A dialect over a transport, with clients of its own."""

    def __init__(self, dialect: str, transport: str, address: str) -> None:
        self.name = f"{dialect} {transport}"
        self._dialect, self._transport = dialect, transport
        binding = DIALECTS[dialect].bindings[transport]
        self._call = binding.calls[Operation.INFER]
        reported = binding.capability.reported_as.get(ErrorCode.OVERLOADED, ErrorCode.OVERLOADED)
        # a status of HTTP may say more than the dialect
        self._refusals = ErrorCode.OVERLOADED, reported
        made = (CLIENTS[transport, "native"](parse_url(address, transport)) for _ in range(CLIENTS_EACH))
        self.clients: list[Any] = list(made)
        self._next = itertools.cycle(self.clients)

    async def ask(self, number: int, phase: Phase) -> None:
        """One request; its outcome goes into ``phase``: ``ok``, ``wrong``, ``refused``, or an error."""
        numbers = np.full(ELEMENTS, number % 1000, np.float32)
        tensor = Tensor("INPUT0", Datatype.FP32, numbers.shape, memoryview(numbers.tobytes()))
        name = "" if self._transport == "tcp" else "slow"
        request, form = self._call.encode(InferRequest(name, (tensor,)), SIGNATURE)
        if self._dialect == "graphpipe" and self._transport == "http":
            request.path = "/graphpipe/slow"
        began = time.monotonic()
        try:
            (answer,) = self._call.decode(form, await next(self._next).send(request)).outputs
            outcome = "ok" if bytes(answer.data) == numbers.tobytes() else "wrong"
        except InferenceError as error:
            outcome = REFUSED if error.code in self._refusals else f"{error.code.name}: {error.message}"
        ended = time.monotonic()
        phase.outcomes[outcome] += 1
        phase.by_way.setdefault(self.name, Counter())[outcome] += 1
        if outcome == "ok":
            phase.accepted.append(ended - began)
        else:
            phase.last_refused = max(phase.last_refused, began)


async def offer(ways: list[Way], rate: float, secs: float) -> Phase:
    """Send ``rate`` requests per second for ``secs``, in turn over all ``ways``."""
    phase = Phase(time.monotonic())
    running = []
    for number, way in enumerate(itertools.islice(itertools.cycle(ways), int(rate * secs))):
        delay = phase.began + number / rate - time.monotonic()
        # a client that is late sends at once
        await asyncio.sleep(max(0.0, delay))
        running.append(asyncio.create_task(way.ask(number, phase)))
    await asyncio.gather(*running)
    return phase


async def _watch(server: Server, held: Counter[str]) -> None:
    """Keep the largest values of the load metrics in ``held``."""
    while True:
        for name, value in await asyncio.to_thread(_load, server.addresses["admin"]):
            held[name] = max(held[name], value)
        await asyncio.sleep(_SAMPLE_SECS)


def _load(admin: str) -> list[tuple[str, int]]:
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    sums: Counter[str] = Counter()
    for line in text.splitlines():
        name, _, value = line.partition("{")
        if name in ("interlingua_requests_in_flight", "interlingua_inflight_bytes"):
            sums[name] += int(float(value.rpartition(" ")[2]))
    return list(sums.items())


async def measure(server: Server, secs: float) -> Result:
    """Calm, overload and calm, ``secs`` each."""
    ways = [
        Way(name, transport, server.addresses[transport])
        for name, dialect in DIALECTS.items()
        for transport in dialect.bindings
    ]
    held: Counter[str] = Counter()
    watch = asyncio.create_task(_watch(server, held))
    try:
        # connections and processes start
        await offer(ways, CALM_SHARE * CAPACITY, 2 * len(ways) / CAPACITY)
        calm = await offer(ways, CALM_SHARE * CAPACITY, secs)
        before = server.peak_mib()
        over = await offer(ways, OVERLOAD * CAPACITY, secs)
        grown = server.peak_mib() - before
        after = await offer(ways, CALM_SHARE * CAPACITY, max(secs, 2 * NORMAL_SECS))
        normal = max(0.0, after.last_refused - after.began)
        settled = await offer(ways, CALM_SHARE * CAPACITY, 4 * len(ways) / CAPACITY)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await asyncio.gather(*(client.close() for way in ways for client in way.clients))
    others = {name: count for name, count in over.outcomes.items() if name not in ("ok", REFUSED)}
    return Result(
        calm_ms=round(calm.p50_ms, 1),
        overload_ms=round(over.p50_ms, 1),
        offered=over.outcomes.total(),
        accepted=over.outcomes["ok"],
        refused=over.outcomes[REFUSED],
        others=others,
        by_way={name: dict(counts) for name, counts in over.by_way.items()},
        held_requests=held["interlingua_requests_in_flight"],
        held_bytes=held["interlingua_inflight_bytes"],
        grown_mib=round(grown, 1),
        normal_secs=round(normal, 2),
        after=dict(settled.outcomes),
    )


def configuration(folder: Path) -> dict[str, Any]:
    """A daemon with the slow model, and listeners of every transport."""
    model = folder / "models" / "slow"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODEL.format(secs=RUN_SECS))
    (model / "config.pbtxt").write_text(MODEL_CONFIG.format(instances=INSTANCES))
    return {
        "server": {
            "workers": 0,
            "log_format": "json",
            "drain_secs": 0.0,
            "max_inflight_requests": MAX_INFLIGHT_REQUESTS,
            "max_inflight_bytes": MAX_INFLIGHT_BYTES,
        },
        "admin": {"listen": "127.0.0.1:0"},
        "model_repository": [{"path": str(folder / "models")}],
        "default_model": "slow",
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": transport, "dialects": cases.over(transport)}
            for transport in ("http", "grpc", "brpc", "tcp")
        ],
    }


def _lines(result: Result) -> Iterator[str]:
    rate = OVERLOAD * CAPACITY
    yield f"offered {result.offered} requests at {rate:.0f} per second, {OVERLOAD} times the capacity"
    others = result.others or "none"
    yield f"accepted {result.accepted}, refused as overload {result.refused}, others {others}"
    times = f"{result.calm_ms} ms before, {result.overload_ms} ms under overload"
    yield f"p50 of accepted requests: {times}, {result.ratio:.2f} times"
    held = f"{result.held_bytes} of {MAX_INFLIGHT_BYTES} bytes"
    yield f"held at most {result.held_requests} of {MAX_INFLIGHT_REQUESTS} requests and {held}"
    yield f"memory grew by {result.grown_mib} MiB; accepts all again after {result.normal_secs} s"


def main() -> int:
    """The command. Returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__)
    parser.add_argument("--secs", type=float, default=10.0, help="the duration of each phase")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        daemon(Path(folder), configuration(Path(folder))) as server,
    ):
        result = asyncio.run(measure(server, options.secs))
    if options.json:
        print(json.dumps({**asdict(result), "misses": result.misses}))
    else:
        print(*_lines(result), sep="\n")
        print("missed:", ", ".join(result.misses) or "none")
    return 1 if result.misses else 0


if __name__ == "__main__":
    sys.exit(main())
