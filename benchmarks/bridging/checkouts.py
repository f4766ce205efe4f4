"""Compares the daemon of this checkout with another's: ``python -m benchmarks.bridging.checkouts DIR``.

Both answer the same requests in short turns, so that other work on the machine hits both alike. DIR is a
checkout with the same dependencies, a worktree of an older commit for example.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import processes
from benchmarks.bridging.servers import Servers, bridge, serving
from benchmarks.bridging.table import ROWS, Row
from benchmarks.bridging.traffic import Traffic


def compare(row: Row, there: Path, turns: int, folder: Path) -> tuple[float, float, float]:
    """The CPU microseconds of a request there and here, medians, and the median ratio of a turn."""
    kind, *target = row.server.split()
    here = processes.ROOT
    with ExitStack() as running:
        folder.mkdir()
        if kind == "serving":
            config = serving(folder)
        else:
            dialect, transport = target
            upstream = Servers(folder, running)["serving"]
            assert upstream is not None
            config = bridge(upstream.addresses[transport], dialect, transport)
        daemons = []
        for place, root in enumerate((there, here)):
            (folder / str(place)).mkdir()
            processes.ROOT = root
            daemons.append(running.enter_context(processes.daemon(folder / str(place), config)))
        traffic, request = Traffic(folder), row.request()
        costs: list[list[float]] = [[], []]
        for turn in range(-1, turns):  # the first one warms up
            for place in (0, 1) if turn % 2 else (1, 0):
                costs[place].append(traffic.cost_us(daemons[place], request, row.count))
    before, after = costs[0][1:], costs[1][1:]
    ratio = statistics.median(ours / theirs for ours, theirs in zip(after, before, strict=True))
    return statistics.median(before), statistics.median(after), ratio


def main() -> int:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bridging.checkouts", description=__doc__)
    parser.add_argument("there", type=Path, metavar="DIR", help="the other checkout")
    parser.add_argument("--turns", type=int, default=12, help="default: 12")
    parser.add_argument("--only", nargs="+", default=["64 B"], metavar="ROW", help="rows with these texts")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if row.server.startswith(("bridge", "serving"))]
    with tempfile.TemporaryDirectory() as place:
        for number, row in enumerate(rows):
            if any(each.lower() in row.title.lower() for each in arguments.only):
                folder = Path(place) / str(number)
                before, after, ratio = compare(row, arguments.there.resolve(), arguments.turns, folder)
                sys.stdout.write(f"{row.title:40} {before:8.1f} {after:8.1f} {ratio:6.2f}\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
