"""The command: ``python -m benchmarks.bridging [--quick] [--json] [--only ROW ...]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks import progress
from benchmarks.bridging import memory, rate, varied
from benchmarks.bridging.figures import Figure
from benchmarks.bridging.servers import Servers
from benchmarks.bridging.table import ROWS, Row
from benchmarks.bridging.traffic import IN_FLIGHT, Traffic
from benchmarks.bridging.turns import Found, measure
from benchmarks.bridging.varied import VariedRow
from interlingua.translator.compiled import is_compiled

BUILDS = {False: "pure Python", True: "compiled"}
"""What the daemons are, by ``is_compiled``."""

_LINE = "{:66} {:>10} {:18} {:>10} {:>7} {:>16}  {}\n"


def _wanted(title: str, only: list[str]) -> bool:
    return not only or any(text.lower() in title.lower() for text in only)


def results(
    rows: list[Row], varied_rows: list[VariedRow], figures: list[str], quick: bool
) -> Iterator[Found | Figure]:
    """Every result as it is measured."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        servers, traffic = Servers(folder, running), Traffic(folder)
        for row in progress.each(rows, lambda row: row.title):
            yield from measure(row, servers, traffic, quick)
        yield from varied.measure(varied_rows, folder, quick)
        if memory.NAME in figures:
            yield from memory.measure(servers, folder, quick)
        if rate.NAME in figures:
            yield from rate.measure(folder, quick)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bridging", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--list", action="store_true", help="print the rows alone")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="ROW", help="rows whose titles contain a text"
    )
    arguments = parser.parse_args()
    rows = [row for row in ROWS if _wanted(row.title, arguments.only)]
    varied_rows = [row for row in varied.VARIED if _wanted(row.title, arguments.only)]
    figures = [name for name in (memory.NAME, rate.NAME) if _wanted(name, arguments.only)]
    if arguments.list:
        titles = (row.title for row in (*rows, *varied_rows))
        sys.stdout.write("".join(f"{title}\n" for title in [*titles, *figures]))
        return 0
    load = os.getloadavg()[0]
    measured = results(rows, varied_rows, figures, arguments.quick)
    if arguments.json:
        found = [{**asdict(each), "verdict": each.verdict} for each in measured]
        machine = {"python": platform.python_version(), "machine": platform.platform()}
        machine |= {"build": BUILDS[is_compiled()]}
        sys.stdout.write(f"{json.dumps({**machine, 'rows': found}, indent=2)}\n")
        return 0
    sys.stdout.write(_LINE.format("row", "us", "baseline", "us", "ratio", "target", ""))
    for each in measured:
        progress.say(_line(each) if isinstance(each, Found) else f"{each}\n")
    sys.stdout.write(
        f"\nCPU time per request of the server's processes, {IN_FLIGHT} requests in flight, "
        f"{varied.CONNECTIONS} in rows of varied, equal and local traffic; "
        f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after; {BUILDS[is_compiled()]}.\n"
    )
    return 0


def _line(found: Found) -> str:
    numbers = ("-" if each is None else each for each in (found.peer_us, found.ratio))
    target = "-" if found.target is None else f"<= {found.target:g}"
    if found.target_us is not None:
        target += f" or +{found.target_us:g} us"
    return _LINE.format(found.row, found.us, found.peer, *numbers, target, found.verdict)


if __name__ == "__main__":
    sys.exit(main())
