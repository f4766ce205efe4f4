"""The table of a run in docs/testing.md: attacks by servers, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.hostile import servers
from benchmarks.hostile.measure import MAX_RATIO, MAX_WORST_MS, Latency, Row
from benchmarks.processes import ROOT

PAGE = ROOT / "docs" / "testing.md"
_PLACE = re.compile(r"(<!-- table: hostile -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = ("attack", "honest ms", "health ms", "MiB", "library: honest ms", "health ms", "MiB", "nghttpd ms")


def table(rows: Sequence[Row]) -> str:
    """A line for each attack; bold where a target is missed, empty where a server was not attacked."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row.attack, {})[row.server] = row
    lines = [_line(_HEAD), "|---" * len(_HEAD) + "|"]
    for attack, by_server in found.items():
        cells = [attack]
        for engine in servers.ENGINES:
            cells += _cells(by_server.get(engine))
        lines.append(_line((*cells, _cells(by_server.get(servers.NGHTTPD))[0])))
    return "\n".join(lines)


def write(rows: Sequence[Row]) -> None:
    """Write the table into the page."""
    text = PAGE.read_text()
    PAGE.write_text(_PLACE.sub(lambda place: f"{place[1]}\n{table(rows)}\n\n{place[2]}", text))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: Row | None) -> tuple[str, str, str]:
    if row is None:
        return "", "", ""
    health = "" if row.health is None else _times(row.health, row.health.worst_ms > MAX_WORST_MS)
    missed = row.ratio > MAX_RATIO or row.honest.worst_ms > MAX_WORST_MS or row.lost > 0
    lost = f", {row.lost} lost" if row.lost else ""
    memory = f"+{row.grown_mib:g}"
    return (
        _times(row.honest, missed) + lost,
        health,
        f"**{memory}**" if row.grown_mib > row.bound_mib else memory,
    )


def _times(latency: Latency, missed: bool) -> str:
    text = f"{latency.median_ms:.2f} / {latency.worst_ms:.0f}"
    return f"**{text}**" if missed else text
