"""The plots of docs/performance.md are those of its tables."""

from __future__ import annotations

import pytest

from benchmarks.plots import DOCS, PAGE, PLOTS, Plot, rows, svg

TABLE = """
## Here

| | bytes | one | two |
|---|---|---|---|
| A | 64 | 5 | 22 (2.6) |
| | 65,536 | 1,000 | 3 |
"""
PLOT = Plot("x.svg", "t", "## Here", 2, ("one", "two"))


def test_rows_of_a_table() -> None:
    assert rows(PLOT, TABLE) == [("A, 64 B", {"one": 5, "two": 22}), ("A, 64 KiB", {"one": 1000, "two": 3})]


def test_a_page_without_the_table() -> None:
    with pytest.raises(LookupError, match="no table"):
        rows(PLOT, TABLE.replace("two", "three"))


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.file)
def test_plots_are_those_of_the_tables(plot: Plot) -> None:
    drawn = (DOCS / "plots" / plot.file).read_text()
    assert drawn == svg(plot, rows(plot, PAGE.read_text())), "run: python -m benchmarks.plots"
