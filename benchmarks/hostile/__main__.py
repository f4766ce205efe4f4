"""The command: ``python -m benchmarks.hostile [--quick] [--json] [--write] [--list] [--only TEXT ...]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator

from benchmarks import progress
from benchmarks.hostile import page, servers
from benchmarks.hostile.attack import Attack
from benchmarks.hostile.measure import LONG, MAX_RATIO, MAX_WORST_MS, QUICK, Latency, Row, measure
from benchmarks.hostile.table import ATTACKS

_TIMES = {"median", "worst"}

_LINE = "{:44} {:8} {:>12} {:>14} {:>6} {:>14} {:>11} {:>5}  {}\n"


def rows(attacks: list[Attack], engines: list[str], quick: bool) -> Iterator[Row]:
    """Every row as it is measured."""
    cases = [(attack, name) for attack in attacks for name in _servers(attack, engines)]
    for attack, name in progress.each(cases, lambda case: f"{case[0].name} against {case[1]}"):
        yield measure(attack, name, QUICK if quick else LONG)


def _servers(attack: Attack, engines: list[str]) -> list[str]:
    """The servers that ``attack`` is for."""
    found = engines if attack.transport in ("http", "grpc") else ["native"]
    return [*found, servers.NGHTTPD] if attack.generic and servers.installed() else found


def main() -> int:
    """Measure and print. Returns 1 if a row misses a target; with ``--quick``, for short runs on busy
    machines, only if memory exceeds its bound or a request is lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter attacks")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into docs/testing.md too")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="attacks whose names contain a text"
    )
    parser.add_argument("--engine", choices=servers.ENGINES, help="the daemon on this engine alone")
    arguments = parser.parse_args()
    attacks = [each for each in ATTACKS if _wanted(each.name, arguments.only)]
    if arguments.list:
        sys.stdout.write("".join(f"{each.name}\n" for each in attacks))
        return 0
    engines = [arguments.engine] if arguments.engine else list(servers.ENGINES)
    found: list[Row] = []
    measured = _kept(rows(attacks, engines, arguments.quick), found)
    if arguments.json:
        machine = {"python": platform.python_version(), "machine": platform.platform()}
        report = {**machine, "rows": [row.document() for row in measured]}
        sys.stdout.write(f"{json.dumps(report, indent=2)}\n")
    else:
        _print(measured)
    if arguments.write:
        page.write(found)
    return int(any(failed(row, arguments.quick) for row in found))


def _kept(measured: Iterator[Row], found: list[Row]) -> Iterator[Row]:
    for row in measured:
        found.append(row)
        yield row


def _wanted(name: str, only: list[str]) -> bool:
    return not only or any(text.lower() in name.lower() for text in only)


def _print(measured: Iterator[Row]) -> None:
    """Print every row as it is measured."""
    load = os.getloadavg()[0]
    columns = ("attack", "server", "alone ms", "beside ms", "ratio", "health ms", "MiB", "lost", "")
    sys.stdout.write(_LINE.format(*columns))
    for row in measured:
        health = "-" if row.health is None else _latency(row.health)
        columns = (
            row.attack,
            row.server,
            _latency(row.alone),
            _latency(row.honest),
            f"{row.ratio:g}",
            health,
        )
        verdict = f"over: {', '.join(row.misses)}" if row.misses else "ok"
        memory = f"{row.peak_mib:g} (+{row.grown_mib:g})"
        progress.say(_LINE.format(*columns, memory, row.lost, verdict))
    sys.stdout.write(
        "\nMedian / worst latency of an inference each 20 ms alone and beside the attack, and of\n"
        f"/health/live beside it; targets: ratio of the medians {MAX_RATIO:g}, worst {MAX_WORST_MS:g} ms.\n"
        f"Load average {load:.1f} before, {os.getloadavg()[0]:.1f} after.\n"
    )


def failed(row: Row, quick: bool) -> bool:
    """Whether the daemon misses a target; nghttpd is there for comparison."""
    misses = set(row.misses) - (_TIMES if quick else set())
    return bool(misses) and row.server != servers.NGHTTPD


def _latency(latency: Latency) -> str:
    return f"{latency.median_ms:.2f} / {latency.worst_ms:.0f}"


if __name__ == "__main__":
    sys.exit(main())
