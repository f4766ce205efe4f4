"""Draws tables of docs/performance.md as docs/plots/*.svg: CPU time per request, on a logarithmic scale.

    python -m benchmarks.plots

The figures are those that the benchmarks printed into the page, so that a plot cannot differ from its table.
"""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "performance.md"

_WIDTH, _LEFT, _RIGHT, _TOP, _BAR, _GAP = 900, 220, 70, 64, 15, 12
COLOURS = ("#4f46e5", "#9ca3af", "#0d9488", "#d97706", "#be185d")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2937}.title{font-size:14px;font-weight:600}"
    ".grid{stroke:#d1d5db}.bg{fill:#fff}"
    "@media (prefers-color-scheme:dark){text{fill:#e5e7eb}.grid{stroke:#374151}.bg{fill:#111827}}"
)


@dataclass(frozen=True)
class Plot:
    """A table of the page: under ``heading`` the first with ``columns``; ``labels`` columns name a row."""

    file: str
    title: str
    heading: str
    labels: int
    columns: tuple[str, ...]


PLOTS = (
    Plot("serving.svg", "CPU µs per request, served", "## One run", 2, ("daemon µs", "bare µs")),
    Plot(
        "bridging.svg",
        "CPU µs per request, passed",
        "## Bridging",
        2,
        ("daemon", "nginx", "serving", "library"),
    ),
)

Row = tuple[str, dict[str, float]]


def rows(plot: Plot, page: str) -> list[Row]:
    """The rows of its table: label, figures by column. Raises ``LookupError`` if the page has none."""
    section = page[page.index(f"\n{plot.heading}\n") :]
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        header, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
        if set(plot.columns) <= set(header):
            break
    else:
        raise LookupError(f"no table with {plot.columns} under {plot.heading}")
    found, names = [], [""] * plot.labels
    for cells in lines:
        # an empty cell repeats the one above
        names = [cell or name for cell, name in zip(cells, names, strict=False)]
        figures = {name: _number(cells[header.index(name)]) for name in plot.columns}
        found.append((f"{names[0]}, {_size(names[1])}", figures))
    return found


def svg(plot: Plot, found: list[Row]) -> str:
    """A group of bars for each row."""
    highest = max(value for _, figures in found for value in figures.values())
    decades = math.ceil(math.log10(highest))
    group = len(plot.columns) * _BAR + _GAP
    height = _TOP + len(found) * group + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(plot.title)}</title><style>{STYLE}</style>",
        f'<rect class="bg" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="10" y="20">{escape(plot.title)} (logarithmic)</text>',
    ]
    for place, name in enumerate(plot.columns):
        x = _LEFT + place * 130
        parts.append(f'<rect x="{x}" y="28" width="12" height="12" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 17}" y="38">{escape(name.removesuffix(" µs"))}</text>')
    for decade in range(decades + 1):
        x = _across(10**decade, decades)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{height - 10}"/>')
        parts.append(f'<text x="{x}" y="{_TOP - 8}" text-anchor="middle">{10**decade:,}</text>')
    for row, (label, figures) in enumerate(found):
        top = _TOP + row * group
        middle = top + (group - _GAP) / 2 + 4
        parts.append(f'<text x="{_LEFT - 8}" y="{middle:g}" text-anchor="end">{escape(label)}</text>')
        for place, value in enumerate(figures.values()):
            y, end = top + place * _BAR, _across(value, decades)
            size = f'width="{max(end - _LEFT, 1):.1f}" height="{_BAR - 3}"'
            parts.append(f'<rect x="{_LEFT}" y="{y}" {size} fill="{COLOURS[place]}"/>')
            parts.append(f'<text x="{end + 5:.1f}" y="{y + 10}">{value:,g}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _across(value: float, decades: int) -> float:
    return round(_LEFT + math.log10(max(value, 1)) / decades * (_WIDTH - _LEFT - _RIGHT), 1)


def _number(cell: str) -> float:
    """Of ``22 (2.6)`` the 22."""
    return float(cell.partition(" ")[0].replace(",", ""))


def _size(size: str) -> str:
    """Bytes as people say them."""
    count = int(size.replace(",", ""))
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"


def main() -> None:
    """Write all of them."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    page = PAGE.read_text(encoding="utf-8")
    (DOCS / "plots").mkdir(exist_ok=True)
    for plot in PLOTS:
        (DOCS / "plots" / plot.file).write_text(svg(plot, rows(plot, page)), encoding="utf-8")


if __name__ == "__main__":
    main()
