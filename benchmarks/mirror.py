"""What a mirror costs those whose requests are copied: ``python -m benchmarks.mirror [--blocks N]``.

Callers come at a quarter of the rate that the daemon can answer, in short blocks, in turns with a mirror and
without; the daemon, the model and the connections are the same. Every request is copied, to a server that
replays answers of another daemon and so takes little of this machine. What is told is the ratio of the
medians of two blocks side by side, over all pairs of blocks, with a confidence interval from drawing pairs
again and again (bootstrap).
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

import numpy as np
import orjson

from benchmarks import processes
from benchmarks.cases import http_request

CONNECTIONS = 16
TARGET_PERCENT = 5.0

_PLAIN, _MIRRORED = "plain", "mirrored"
_DRAWS = 10_000


def near(target: str) -> dict[str, Any]:
    """The daemon that callers ask: a model by two names, one of which has a mirror, at ``target``."""
    mirror = {"to": "other", "percent": 100.0}
    return {
        "server": {"log_format": "json", "drain_secs": 0.0},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0"},
        "model_repository": [{"path": "examples/models", "load": ["digits"]}],
        "models": {"other": {"upstream": "other", "remote_model": "digits"}},
        "upstreams": {"other": {"dialect": "oip", "transport": "http", "urls": [target]}},
        "routes": [
            {"match": {"model": _MIRRORED}, "to": "digits", "mirror": mirror},
            {"match": {"model": _PLAIN}, "to": "digits"},
        ],
    }


FAR: dict[str, Any] = {
    "server": {"log_format": "json", "drain_secs": 0.0},
    "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
    "model_repository": [{"path": "examples/models", "load": ["digits"]}],
}


@dataclass(frozen=True)
class Found:
    """Medians in microseconds, block by block, in pairs; what the mirror says of itself."""

    capacity: float
    rate: float
    plain_us: Sequence[float]
    mirrored_us: Sequence[float]
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

    def __init__(self, near: processes.Server, folder: Path, arrivals: processes.Arrivals) -> None:
        self._near = near
        self._arrivals = arrivals
        self._requests = {name: folder / name for name in (_PLAIN, _MIRRORED)}
        pixels = np.random.default_rng(0).random((1, 64), np.float32)
        tensor = {"name": "image", "datatype": "FP32", "shape": [1, 64], "data": pixels.ravel().tolist()}
        for name, path in self._requests.items():
            body = orjson.dumps({"inputs": [tensor]})
            path.write_bytes(http_request(f"/v2/models/{name}/infer", {}, body))

    def capacity(self, secs: float) -> float:
        """How many requests in a second are answered to clients who never pause."""
        with processes.clients() as clients:
            clients.connect(self._order(_PLAIN, secs))
            told = clients.go()
        return told["count"] / told["secs"]

    def block(self, name: str, rate: float, secs: float, seed: int) -> list[float]:
        """How long each request took, in microseconds; the copies of all are over then."""
        order = self._order(name, secs) | {"rate": rate, "seed": seed}
        took = self._arrivals.drive(order)
        while self.report()["held"]["requests"]:
            time.sleep(0.01)
        return took

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
def running() -> Iterator[Bench]:
    """Both daemons, and the process that sends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "far").mkdir()
        far = stack.enter_context(processes.daemon(folder / "far", FAR))
        replay = stack.enter_context(processes.replay(far.addresses["http"]))
        server = stack.enter_context(processes.daemon(folder, near(replay)))
        yield Bench(server, folder, stack.enter_context(processes.arrivals()))


def measure(bench: Bench, blocks: int, secs: float) -> Found:
    """Run ``blocks`` pairs of blocks of ``secs`` each, in changing order."""
    capacity = bench.capacity(3.0)
    rate = capacity / 4
    chance = random.Random(1)
    medians: dict[str, list[float]] = {_PLAIN: [], _MIRRORED: []}
    count = 0
    for number in range(-1, blocks):
        names = [_PLAIN, _MIRRORED]
        chance.shuffle(names)
        for name in names:
            # the same arrivals for both
            took = bench.block(name, rate, secs, number)
            if number >= 0:  # the first pair is there to warm up
                medians[name].append(statistics.median(took))
                count += len(took)
    return Found(capacity, rate, medians[_PLAIN], medians[_MIRRORED], count, bench.report())


def main() -> int:
    """Measure and print; 1 where the mirror costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mirror", description=__doc__)
    parser.add_argument("--blocks", type=int, default=60, metavar="N", help="pairs of blocks (default: 60)")
    parser.add_argument("--secs", type=float, default=1.0, metavar="S", help="for a block (default: 1)")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with running() as bench:
        found = measure(bench, arguments.blocks, arguments.secs)
    low, high = found.interval()
    told = found.report
    sys.stdout.write(
        f"{found.capacity:.0f} requests/s at most, asked at {found.rate:.0f}/s; {found.requests} requests in "
        f"{arguments.blocks} pairs of blocks; load {load:.1f} before, {os.getloadavg()[0]:.1f} after\n"
        f"median latency: {statistics.median(found.plain_us):.0f} us without a mirror, "
        f"{statistics.median(found.mirrored_us):.0f} us with one\n"
        f"ratio of the medians of a pair: {found.overhead_percent:+.2f} %, 95 % confidence "
        f"[{low:+.2f}, {high:+.2f}] %, target below {TARGET_PERCENT:g} %\n"
        f"mirror: {json.dumps({key: told[key] for key in ('compared', 'equal', 'different', 'dropped')})}, "
        f"its median {told['latency_ms']['mirror']['p50']} ms\n"
    )
    return int(found.overhead_percent >= TARGET_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
