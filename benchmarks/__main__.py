"""The command: ``python -m benchmarks [--quick] [--json] [--only TEXT]``."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import processes, progress
from benchmarks.cases import CASES, CONFIG, Case
from benchmarks.processes import Load, Server

ROUNDS = 7
QUICK_ROUNDS = 3
ROUND_SECS = 4.0
"""No round takes longer, however slow the machine."""

_PACKAGES = ("aiohttp", "grpcio", "uvloop", "orjson", "pysimdjson", "numpy")


@dataclass(frozen=True)
class Row:
    """What a case cost. Times are CPU microseconds per request: medians over the rounds."""

    case: str
    bytes: int
    daemon_us: float
    bare_us: float
    ratio: float
    target: float

    @property
    def verdict(self) -> str:
        """Whether the ratio is what it should be."""
        return "ok" if self.ratio <= self.target else "over"


def measure(case: Case, daemon: Server, bare: Server, load: Load, folder: Path, quick: bool) -> Row:
    """Drive both servers in turns, so that a busy neighbour hits both alike."""
    request, expected = folder / "request", folder / "expected"
    for path, data in zip((request, expected), case.request(), strict=True):
        path.write_bytes(data)

    def cost(server: Server, count: int) -> float:
        before = server.cpu_secs()
        done = load.drive(
            {
                "transport": case.transport,
                "address": server.addresses[case.transport],
                "method": case.method,
                "request": str(request),
                "expected": str(expected),
                "count": count,
                "secs": ROUND_SECS,
            }
        )
        return (server.cpu_secs() - before) / done * 1e6

    count = case.count // 3 if quick else case.count
    for server in (daemon, bare):
        cost(server, max(count // 4, 3))
    ours, theirs = [], []
    for _ in range(QUICK_ROUNDS if quick else ROUNDS):
        ours.append(cost(daemon, count))
        theirs.append(cost(bare, count))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return Row(
        case.name,
        case.size,
        round(statistics.median(ours), 1),
        round(statistics.median(theirs), 1),
        round(ratio, 2),
        case.target,
    )


def rows(only: str, quick: bool) -> Iterator[Row]:
    """Every case whose name contains ``only``, as it is measured."""
    chosen = [case for case in CASES if only.lower() in case.name.lower()]
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        daemon = running.enter_context(processes.daemon(folder, CONFIG))
        load = running.enter_context(processes.load())
        bare = {
            kind: running.enter_context(processes.floor(kind))
            for kind in dict.fromkeys(case.floor for case in chosen)
        }
        for case in progress.each(chosen, lambda case: case.name):
            yield measure(case, daemon, bare[case.floor], load, folder, quick)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    arguments = parser.parse_args()
    measured = rows(arguments.only, arguments.quick)
    if arguments.json:
        sys.stdout.write(f"{json.dumps(_report(list(measured)), indent=2)}\n")
        return 0
    line = "{:28} {:>9} {:>12} {:>12} {:>7} {:>8}  {}\n"
    sys.stdout.write(line.format("case", "bytes", "daemon us", "bare us", "ratio", "target", ""))
    for row in measured:
        columns = (row.case, row.bytes, row.daemon_us, row.bare_us, row.ratio, f"<= {row.target:g}")
        progress.say(line.format(*columns, row.verdict))
    sys.stdout.write(
        "\nCPU time per request of the server's processes; bare = aiohttp, grpcio, streams alone.\n"
    )
    return 0


def _report(measured: list[Row]) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "packages": {name: version(name) for name in _PACKAGES},
        "rows": [{**asdict(row), "verdict": row.verdict} for row in measured],
    }


if __name__ == "__main__":
    sys.exit(main())
