"""The benchmark of front ends compares the busiest processes."""

from __future__ import annotations

from benchmarks.workers import Figures


def test_capacity_is_that_of_the_busiest_process() -> None:
    figures = Figures()
    # a process that starts meanwhile counts from zero
    figures.add({1: 1.0, 2: 5.0}, {1: 1.5, 2: 7.0, 3: 0.1}, {"count": 1000, "p50_ms": 3.0})
    assert figures == Figures([500.0], [2600.0], [3.0])
