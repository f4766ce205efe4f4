"""What a mirror costs those whose requests are copied: ``python -m benchmarks.mirror [--blocks N]``.

Callers come at a quarter of the rate that the daemon can answer, in short blocks, in turns with a mirror and
without; the daemon, the model and the connections are the same. Requests are copied to a server that replays
answers of another daemon and so takes little of this machine. What is told is the ratio of the medians of two
blocks side by side, over all pairs of blocks, with a confidence interval from drawing pairs again and again
(bootstrap).

The server that a mirror copies to is another machine, and the process that judges has a processor of its own.
So here callers and daemon run on one processor, that process and that server on the others. ``--anywhere``
lets all of them run where they like, as on a machine that has nothing to spare.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks import processes, progress
from benchmarks.batched_models import Served, repository, served
from benchmarks.cases import http_request
from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import InferRequest, Operation, Tensor

CONNECTIONS = 16
TARGET_PERCENT = 5.0

_PLAIN, _MIRRORED = "plain", "mirrored"
_DRAWS = 10_000
_SETTLE_SECS = 0.1
"""Most copies are over after this; a report costs the daemon as much as several requests."""


def near(target: str, percent: float, repository: Path, model: str) -> dict[str, Any]:
    """The daemon that callers ask: a model by two names, one of which has a mirror, at ``target``, of
    ``percent`` of its requests."""
    mirror = {"to": "other", "percent": percent}
    return {
        "server": {"log_format": "json", "drain_secs": 0.0},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0"},
        "model_repository": [{"path": str(repository), "load": [model]}],
        "models": {"other": {"upstream": "other", "remote_model": model}},
        "upstreams": {"other": {"dialect": "oip", "transport": "http", "urls": [target]}},
        "routes": [
            {"match": {"model": _MIRRORED}, "to": model, "mirror": mirror},
            {"match": {"model": _PLAIN}, "to": model},
        ],
    }


def far(repository: Path, model: str) -> dict[str, Any]:
    """The daemon whose answers the mirror's server replays."""
    return {
        "server": {"log_format": "json", "drain_secs": 0.0},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "model_repository": [{"path": str(repository), "load": [model]}],
    }


@dataclass(frozen=True)
class Found:
    """Medians in microseconds, block by block, in pairs; the CPU microseconds that the daemon took for a
    request, without its process that judges; what the mirror says of itself."""

    capacity: float
    rate: float
    plain_us: Sequence[float]
    mirrored_us: Sequence[float]
    plain_cpu_us: Sequence[float]
    mirrored_cpu_us: Sequence[float]
    requests: int
    report: dict[str, Any]

    @property
    def overhead_percent(self) -> float:
        """By how much the median latency is larger with a mirror."""
        return _overhead(list(zip(self.plain_us, self.mirrored_us, strict=True)))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where that lies, by drawing as many pairs again and again."""
        pairs = list(zip(self.plain_us, self.mirrored_us, strict=True))
        draw = random.Random(0)
        found = sorted(_overhead(draw.choices(pairs, k=len(pairs))) for _ in range(_DRAWS))
        outside = int((1 - confidence) / 2 * _DRAWS)
        return found[outside], found[-1 - outside]


def _overhead(pairs: Sequence[tuple[float, float]]) -> float:
    return (statistics.median(mirrored / plain for plain, mirrored in pairs) - 1) * 100


class Bench:
    """The daemon ``near``, and whoever sends to it."""

    def __init__(
        self, near: processes.Server, folder: Path, arrivals: processes.Arrivals, model: Served
    ) -> None:
        self._near = near
        self._arrivals = arrivals
        self._requests = {name: folder / name for name in (_PLAIN, _MIRRORED)}
        inputs = (Tensor.from_numpy(model.input[0], model.rows(1)),)
        for name, path in self._requests.items():
            call, _ = (
                DIALECTS["oip"]
                .bindings["http"]
                .calls[Operation.INFER]
                .encode(InferRequest(name, inputs), None)
            )
            path.write_bytes(http_request(call.path, dict(call.headers), b"".join(call.parts)))

    def capacity(self, secs: float) -> float:
        """How many requests in a second are answered to clients who never pause."""
        with processes.clients() as clients:
            clients.connect(self._order(_PLAIN, secs))
            told = clients.go()
        return told["count"] / told["secs"]

    def block(self, name: str, rate: float, secs: float, seed: int) -> tuple[list[float], float]:
        """How long each request took, and the daemon's CPU time for one, in microseconds; the copies of all
        are over then."""
        order = self._order(name, secs) | {"rate": rate, "seed": seed}
        before = self._near.own_cpu_secs()
        took = self._arrivals.drive(order)
        time.sleep(_SETTLE_SECS)
        while self.report()["held"]["requests"]:
            time.sleep(_SETTLE_SECS)
        return took, (self._near.own_cpu_secs() - before) / len(took) * 1e6

    def report(self) -> dict[str, Any]:
        """What the mirror has found."""
        with urllib.request.urlopen(f"http://{self._near.addresses['admin']}/mirror", timeout=10) as reply:
            found: dict[str, Any] = orjson.loads(reply.read())["mirrors"][0]
        return found

    def _order(self, name: str, secs: float) -> dict[str, Any]:
        return {
            "transport": "http",
            "address": self._near.addresses["http"],
            "request": str(self._requests[name]),
            "clients": CONNECTIONS,
            "secs": secs,
        }


@contextmanager
def running(percent: float = 100.0, pinned: bool = True, model: str = "digits") -> Iterator[Bench]:
    """Both daemons, and the process that sends. ``pinned``: callers and the daemon that they ask on one
    processor, what a mirror has elsewhere on the others."""
    cpus = sorted(os.sched_getaffinity(0))
    here, elsewhere = (cpus[:1], cpus[1:]) if pinned and len(cpus) > 1 else (cpus, cpus)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "far").mkdir()
        (chosen,) = (each for each in served(folder) if each.name == model)
        models, name = repository(folder / "models", chosen, "onnxruntime"), chosen.variant(0)
        with processes.pinned(elsewhere):
            other = stack.enter_context(processes.daemon(folder / "far", far(models, name)))
            replay = stack.enter_context(processes.replay(other.addresses["http"]))
        stack.enter_context(processes.pinned(here))
        server = stack.enter_context(processes.daemon(folder, near(replay, percent, models, name)))
        server.move_others(elsewhere)
        yield Bench(server, folder, stack.enter_context(processes.arrivals()), chosen)


def measure(bench: Bench, blocks: int, secs: float) -> Found:
    """Run ``blocks`` pairs of blocks of ``secs`` each, in changing order."""
    capacity = bench.capacity(3.0)
    rate = capacity / 4
    chance = random.Random(1)
    medians: dict[str, list[float]] = {_PLAIN: [], _MIRRORED: []}
    cpu: dict[str, list[float]] = {_PLAIN: [], _MIRRORED: []}
    count = 0
    for number in progress.each(range(-1, blocks), lambda number: "pairs of blocks"):
        names = [_PLAIN, _MIRRORED]
        chance.shuffle(names)
        for name in names:
            # the same arrivals for both
            took, spent = bench.block(name, rate, secs, number)
            if number >= 0:  # the first pair is there to warm up
                medians[name].append(statistics.median(took))
                cpu[name].append(spent)
                count += len(took)
    in_pairs = medians[_PLAIN], medians[_MIRRORED], cpu[_PLAIN], cpu[_MIRRORED]
    return Found(capacity, rate, *in_pairs, count, bench.report())


def main() -> int:
    """Measure and print; 1 where the mirror costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mirror", description=__doc__)
    parser.add_argument("--blocks", type=int, default=60, metavar="N", help="pairs of blocks (default: 60)")
    parser.add_argument("--secs", type=float, default=1.0, metavar="S", help="for a block (default: 1)")
    parser.add_argument("--percent", type=float, default=100.0, metavar="P", help="copied (default: 100)")
    parser.add_argument("--model", choices=("digits", "resnet"), default="digits", help="default: digits")
    parser.add_argument("--anywhere", action="store_true", help="pin no process to a processor")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    pinned = not arguments.anywhere and len(os.sched_getaffinity(0)) > 1
    with running(arguments.percent, pinned, arguments.model) as bench:
        found = measure(bench, arguments.blocks, arguments.secs)
    low, high = found.interval()
    told = found.report
    where = "every process anywhere"
    if pinned:
        where = "callers and daemon on one processor, the mirror's server and process on the others"
    sys.stdout.write(
        f"{arguments.model}, {arguments.percent:g} % copied; {where}\n"
        f"{found.capacity:.0f} requests/s at most, asked at {found.rate:.0f}/s; {found.requests} requests in "
        f"{arguments.blocks} pairs of blocks; load {load:.1f} before, {os.getloadavg()[0]:.1f} after\n"
        f"median latency: {statistics.median(found.plain_us):.0f} us without a mirror, "
        f"{statistics.median(found.mirrored_us):.0f} us with one\n"
        f"CPU of the daemon itself for a request: {statistics.median(found.plain_cpu_us):.0f} us without, "
        f"{statistics.median(found.mirrored_cpu_us):.0f} us with one\n"
        f"ratio of the medians of a pair: {found.overhead_percent:+.2f} %, 95 % confidence "
        f"[{low:+.2f}, {high:+.2f}] %, target below {TARGET_PERCENT:g} %\n"
        f"mirror: {json.dumps({key: told[key] for key in ('compared', 'equal', 'different', 'dropped')})}, "
        f"its median {told['latency_ms']['mirror']['p50']} ms\n"
    )
    return int(found.overhead_percent >= TARGET_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
