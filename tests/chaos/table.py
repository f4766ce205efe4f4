"""The table of a run: faults by dialects, in Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.measure import DIALECTS, Row

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
_PLACE = re.compile(r"(<!-- table: chaos -->\n).*?(<!-- end -->)", re.DOTALL)


def table(rows: Sequence[Row]) -> str:
    """A line for each fault."""
    lines = [
        f"| fault | callers affected | {' | '.join(DIALECTS)} | lost | seconds to normal |",
        f"|---|---|{'---|' * len(DIALECTS)}---|---|",
    ]
    for row in rows:
        cells = [_cell(row.outcomes[dialect]) for dialect in DIALECTS]
        affected = ", ".join(row.fault.affected) or "none"
        lines.append(
            f"| {row.fault.name} | {affected} | {' | '.join(cells)} | {row.lost} | {row.normal_secs:.1f} |"
        )
    return "\n".join(lines)


def write(rows: Sequence[Row]) -> None:
    """Write the table into the page."""
    text = PAGE.read_text()
    PAGE.write_text(_PLACE.sub(lambda found: f"{found[1]}\n{table(rows)}\n\n{found[2]}", text))


def _cell(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()) or "-"
