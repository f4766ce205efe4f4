"""TensorFlow Serving's dialect next to OIP and KServe's server: ``python -m benchmarks.tfserving [--quick]``.

The cost of a request of 16 floats to a model that returns them, in CPU microseconds of the server. All are
measured in turns in one run, so that the ratios hold on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from benchmarks import processes, progress
from benchmarks.cases import CASES, CONFIG, MODEL, Case, http_request, tfserving_grpc
from benchmarks.load import connected
from benchmarks.processes import Load, Server

SIZE = 64
PREDICT = "/tensorflow.serving.PredictionService/Predict"
_START_SECS = 60.0


@dataclass(frozen=True)
class Row:
    """A case and what it is compared with; ``target`` bounds the ratio. ``peer``: it is KServe's server that
    answers the other one."""

    case: Case
    other: Case
    target: float
    peer: bool = False


def _rest(size: int) -> tuple[bytes, bytes]:
    values = np.random.default_rng(0).random((1, size // 4), np.float32)
    body = orjson.dumps({"instances": values}, option=orjson.OPT_SERIALIZE_NUMPY)
    path = f"/v1/models/{MODEL}:predict"
    return http_request(path, {"Content-Type": "application/json"}, body), b'"predictions":['


def _named(name: str) -> Case:
    return next(case for case in CASES if case.name == name and case.size == SIZE)


REST = Case("REST :predict, 16 floats", "http", SIZE, 1000, 0.0, _rest)
GRPC = Case("gRPC Predict, 16 floats", "grpc", SIZE, 1000, 0.0, tfserving_grpc, PREDICT)
ROWS = (
    Row(REST, _named("OIP HTTP JSON, 16 floats"), 1.3),
    Row(GRPC, _named("OIP gRPC raw"), 1.1),
    Row(REST, REST, 0.15, peer=True),
)


def _cost(case: Case, server: Server, load: Load, folder: Path, count: int) -> float:
    request, expected = folder / "request", folder / "expected"
    for path, data in zip((request, expected), case.request(), strict=True):
        path.write_bytes(data)
    order = {
        "transport": case.transport,
        "address": server.addresses[case.transport],
        "method": case.method,
        "request": str(request),
        "expected": str(expected),
        "count": count,
        "secs": 4.0,
    }
    before = server.cpu_secs()
    done = load.drive(order)
    return (server.cpu_secs() - before) / done * 1e6


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + _START_SECS
    while True:
        try:
            connected(address).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def measure(rows: Sequence[Row], rounds: int, count: int) -> list[tuple[Row, float, float, float]]:
    """Each row with both costs and their ratio, medians over the rounds."""
    found = []
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        ours = running.enter_context(processes.daemon(folder, CONFIG))
        load = running.enter_context(processes.load())
        kserve = None
        if any(row.peer for row in rows):
            kserve = running.enter_context(processes.peer("benchmarks.kserve_rows", "http"))
            _wait_for(kserve.addresses["http"])
        for row in progress.each(rows, lambda row: row.case.name):
            other = kserve if row.peer and kserve is not None else ours
            for case, server in ((row.case, ours), (row.other, other)):
                _cost(case, server, load, folder, count // 4 + 3)
            costs = [
                (_cost(row.case, ours, load, folder, count), _cost(row.other, other, load, folder, count))
                for _ in range(rounds)
            ]
            mine, theirs = (statistics.median(side) for side in zip(*costs, strict=True))
            found.append((row, mine, theirs, statistics.median(a / b for a, b in costs)))
    return found


def main() -> int:
    """Measure and print; 1 if a ratio is above its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tfserving", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args().quick
    over = False
    for row, mine, theirs, ratio in measure(ROWS, 3 if quick else 7, 300 if quick else 1000):
        other = "KServe's server" if row.peer else row.other.name
        over = over or ratio > row.target
        sys.stdout.write(
            f"{row.case.name:28} {mine:8.1f} us   {other:28} {theirs:8.1f} us   "
            f"{ratio:5.2f} x (target <= {row.target})\n"
        )
    return int(over)


if __name__ == "__main__":
    raise SystemExit(main())
