"""Compares two daemons: ``python -m benchmarks.bridging.checkouts BEFORE [AFTER]``.

Both answer the same requests in short turns, so that other work on the machine hits both alike. Each place is
a checkout with the same dependencies, a worktree of an older commit for example, or an environment in which a
build is installed, such as ``.venv-compiled``.
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

HERE, PYTHON = processes.ROOT, processes.PYTHON


def start_from(place: Path) -> None:
    """Start further processes from ``place``."""
    processes.ROOT, processes.PYTHON = place, PYTHON
    if (place / "pyvenv.cfg").is_file():  # the sources here stay out of the path
        processes.ROOT, processes.PYTHON = HERE, (str(place / "bin" / "python"), "-P")


def compare(row: Row, places: tuple[Path, Path], turns: int, folder: Path) -> tuple[float, float, float]:
    """The CPU microseconds of a request before and after, medians, and the median ratio of a turn."""
    kind, *target = row.server.split()
    start_from(HERE)
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
        for number, place in enumerate(places):
            (folder / str(number)).mkdir()
            start_from(place)
            daemons.append(running.enter_context(processes.daemon(folder / str(number), config)))
        traffic, request = Traffic(folder), row.request()
        costs: list[list[float]] = [[], []]
        for turn in range(-1, turns):  # the first one warms up
            for number in (0, 1) if turn % 2 else (1, 0):
                costs[number].append(traffic.cost_us(daemons[number], request, row.count))
    before, after = costs[0][1:], costs[1][1:]
    ratio = statistics.median(one / other for one, other in zip(after, before, strict=True))
    return statistics.median(before), statistics.median(after), ratio


def main() -> int:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bridging.checkouts", description=__doc__)
    parser.add_argument("before", type=Path, help="the other checkout or environment")
    parser.add_argument("after", type=Path, nargs="?", default=HERE, help="default: this checkout")
    parser.add_argument("--turns", type=int, default=12, help="default: 12")
    parser.add_argument("--only", nargs="+", default=["64 B"], metavar="ROW", help="rows with these texts")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if row.server.startswith(("bridge", "serving"))]
    with tempfile.TemporaryDirectory() as place:
        for number, row in enumerate(rows):
            if any(each.lower() in row.title.lower() for each in arguments.only):
                folder = Path(place) / str(number)
                places = arguments.before.absolute(), arguments.after.absolute()
                before, after, ratio = compare(row, places, arguments.turns, folder)
                sys.stdout.write(f"{row.title:40} {before:8.1f} {after:8.1f} {ratio:6.2f}\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
