"""What front ends add: the capacity of a server of several processes, and its cost per request.

``python -m benchmarks.workers [--quick] [--workers N]``: each row with one process, and with ``N`` front ends
next to the runtime process, in turns. Capacity is the number of requests for a CPU second of the busiest
process, because that process is the limit where there are cores enough. CPU is of all processes together. The
load generator is not part of any figure.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import processes, progress
from benchmarks.cases import CASES, CONFIG, MODEL, Case
from benchmarks.processes import Server

_CLIENTS = 32
_ROUNDS, _QUICK_ROUNDS = 7, 2
_SECS = 2.0


@dataclass(frozen=True)
class Row:
    """``case`` and ``size`` name the case; ``bridged``: to a server over OIP gRPC."""

    name: str
    case: str
    size: int
    bridged: bool = False


ROWS = (
    Row("GraphPipe HTTP -> OIP gRPC, 64 B", "GraphPipe HTTP", 64, bridged=True),
    Row("OIP HTTP JSON, 16k floats", "OIP HTTP JSON, 16k floats", 64 << 10),
    Row("GraphPipe HTTP, 64 B", "GraphPipe HTTP", 64),
    Row("OIP HTTP binary, 4 MiB", "OIP HTTP binary", 4 << 20),
)


@dataclass
class Figures:
    """One number for each round."""

    capacity: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)

    def add(self, before: Mapping[int, float], after: Mapping[int, float], done: Mapping[str, float]) -> None:
        """Add a round: the CPU seconds of each process before and after it."""
        spent = [after[pid] - before.get(pid, 0.0) for pid in after]
        self.capacity.append(done["count"] / max(spent))
        self.cpu_us.append(sum(spent) / done["count"] * 1e6)
        self.p50_ms.append(done["p50_ms"])


def config(workers: int, row: Row, upstream: str) -> dict[str, Any]:
    """The configuration of the daemon of ``row``."""
    found = {**CONFIG, "server": {**CONFIG["server"], "workers": workers}}
    if row.bridged:
        found["models"] = {MODEL: {"upstream": "there", "remote_model": MODEL}}
        found["upstreams"] = {"there": {"dialect": "oip", "transport": "grpc", "urls": [upstream]}}
    return found


def round_of(server: Server, case: Case, request: Path, figures: Figures) -> None:
    """Send for some seconds, and add the figures."""
    order = {
        "transport": case.transport,
        "address": server.addresses[case.transport],
        "method": case.method,
        "request": str(request),
        "clients": _CLIENTS,
        "secs": _SECS,
    }
    with processes.clients() as clients:
        clients.connect(order)
        before = server.cpu_secs_by_process()
        done = clients.go()
        figures.add(before, server.cpu_secs_by_process(), done)


def measure(row: Row, workers: int, rounds: int, folder: Path, there: Server) -> None:
    """Print a line of the table."""
    case = next(case for case in CASES if (case.name, case.size) == (row.case, row.size))
    request = folder / "request"
    request.write_bytes(case.request()[0])
    with ExitStack() as running:
        sides: list[tuple[Server, Figures]] = []
        for count in (0, workers):
            own = folder / f"{row.case} {row.bridged} {count}"
            own.mkdir()
            daemon = processes.daemon(own, config(count, row, there.addresses["grpc"]))
            sides.append((running.enter_context(daemon), Figures()))
        for _ in range(rounds):
            for server, figures in sides:
                round_of(server, case, request, figures)
    (_, one), (_, several) = sides
    ratio = statistics.median(b / a for a, b in zip(one.capacity, several.capacity, strict=True))
    slower = statistics.median(b / a for a, b in zip(one.p50_ms, several.p50_ms, strict=True))
    cells = [
        row.name,
        f"{statistics.median(one.capacity):,.0f}",
        f"{statistics.median(several.capacity):,.0f}",
        f"{ratio:.2f}",
        f"{statistics.median(one.cpu_us):,.0f}",
        f"{statistics.median(several.cpu_us):,.0f}",
        f"{slower:.2f}",
    ]
    progress.say(f"| {' | '.join(cells)} |\n")


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--workers", type=int, default=2, help="the number of front ends")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose name has one of these")
    chosen = parser.parse_args(arguments)
    heads = (
        "row",
        "capacity, one process, 1/s",
        f"{chosen.workers} front ends, 1/s",
        "ratio",
        "CPU, one process, µs",
        "all processes, µs",
        "p50 ratio",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        (folder / "there").mkdir()
        there = running.enter_context(processes.daemon(folder / "there", CONFIG))
        rows = [row for row in ROWS if not chosen.only or any(text in row.name for text in chosen.only)]
        for row in progress.each(rows, lambda row: row.name):
            measure(row, chosen.workers, _QUICK_ROUNDS if chosen.quick else _ROUNDS, folder, there)
    return 0


if __name__ == "__main__":
    sys.exit(main())
