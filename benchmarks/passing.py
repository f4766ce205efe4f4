"""The cost of messages that pass through, compared with decoding them.

``python -m benchmarks.passing [--only ROW ...]``: two daemons forward everything to a third. One lets
messages pass through; the other decodes them, because it has a route with a condition on parameters. CPU
microseconds of the daemon in the middle per request, medians of alternating rounds; for OIP over gRPC on each
engine of its listener.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.cases import CASES, CONFIG, MODEL, Case, tfserving_grpc
from benchmarks.processes import Load, Server
from benchmarks.tfserving import PREDICT, REST

TARGET = 0.9
_ROUNDS, _QUICK_ROUNDS, _SECS = 9, 3, 1.0
_SIZES = (64, 4 << 20)


@dataclass(frozen=True)
class Row:
    """``case`` is the name of the cases, ``engines`` are those of the listener."""

    dialect: str
    transport: str
    case: str
    engines: tuple[str, ...] = ("native",)

    @property
    def name(self) -> str:
        return f"{self.dialect}/{self.transport}"


ROWS = (
    Row("oip", "grpc", "OIP gRPC raw", ("native", "library")),
    Row("oip", "http", "OIP HTTP binary"),
    Row("trtis", "http", "TRTIS HTTP"),
    Row("graphpipe", "http", "GraphPipe HTTP"),
    Row("graphpipe", "tcp", "GraphPipe tcp"),
    Row("tfserving", "grpc", "TensorFlow Serving gRPC"),
    Row("tfserving", "http", REST.name),
)

_CASES = (
    *CASES,
    REST,
    *(Case("TensorFlow Serving gRPC", "grpc", size, 0, 0.0, tfserving_grpc, PREDICT) for size in _SIZES),
)


def between(upstream: str, row: Row, engine: str, decodes: bool) -> dict[str, Any]:
    """The configuration of a daemon in front of ``upstream``, which ``decodes`` messages."""
    dialect, transport = row.dialect, row.transport
    route = {"match": {"model": MODEL, "parameters": {"absent": "x"}}, "to": MODEL}
    listener = {"listen": "127.0.0.1:0", "transport": transport, "dialects": [dialect]}
    one_model = transport == "tcp"
    listener |= {"default_model": MODEL} if one_model else {"engine": engine}
    return {
        "server": CONFIG["server"],
        "listeners": [listener],
        "models": {MODEL: {"upstream": "there", "remote_model": "" if one_model else MODEL}},
        "upstreams": {"there": {"dialect": dialect, "transport": transport, "urls": [upstream]}},
        **({"routes": [route]} if decodes else {}),
    }


def cost_us(server: Server, load: Load, order: dict[str, Any]) -> float:
    """CPU microseconds of a request in one round."""
    before = server.cpu_secs()
    done = load.drive({**order, "address": server.addresses[order["transport"]]})
    return (server.cpu_secs() - before) / done * 1e6


def order_of(case: Case, folder: Path) -> dict[str, Any]:
    """What the load sends in a round."""
    files = {"request": folder / "request", "expected": folder / "expected"}
    for path, data in zip(files.values(), case.request(), strict=True):
        path.write_bytes(data)
    return {
        "transport": case.transport,
        "method": case.method,
        "count": 1_000_000,
        "secs": _SECS,
        **{name: str(path) for name, path in files.items()},
    }


def measure(row: Row, folder: Path, running: ExitStack, load: Load, there: Server, rounds: int) -> bool:
    """Print a line for each engine and size; whether all keep the target."""
    kept = True
    for engine in row.engines:
        servers = []
        for decodes in (False, True):
            own = folder / f"{row.dialect} {row.transport} {engine} {decodes}"
            own.mkdir()
            config = between(there.addresses[row.transport], row, engine, decodes)
            servers.append(running.enter_context(processes.daemon(own, config)))
        for case in _CASES:
            if case.name != row.case or case.size not in _SIZES:
                continue
            order = order_of(case, folder)
            pairs = [[cost_us(server, load, order) for server in servers] for _ in range(rounds)]
            passed, decoded = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(one / other for one, other in pairs)
            kept = kept and ratio <= TARGET
            print(
                f"{row.name:15} engine {engine:8} {case.size:9,} bytes: {passed:8.1f} us passed, "
                f"{decoded:8.1f} us decoded, ratio {ratio:.2f} (target <= {TARGET})",
                flush=True,
            )
    return kept


def main() -> int:
    """Measure every row; 1 if one misses the target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.passing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows such as oip/http")
    arguments = parser.parse_args()
    rounds = _QUICK_ROUNDS if arguments.quick else _ROUNDS
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        load = running.enter_context(processes.load())
        (folder / "there").mkdir()
        there = running.enter_context(processes.daemon(folder / "there", CONFIG))
        rows = [row for row in ROWS if not arguments.only or row.name in arguments.only]
        kept = [measure(row, folder, running, load, there, rounds) for row in rows]
    return int(not all(kept))


if __name__ == "__main__":
    raise SystemExit(main())
