"""The benchmark of mirrors runs, and its arithmetic is right."""

from __future__ import annotations

import os

import pytest

from benchmarks.mirror import Found, measure, running


def found(plain: list[float], mirrored: list[float]) -> Found:
    return Found(1.0, 1.0, plain, mirrored, [], [], 0, {})


def test_the_overhead_is_that_of_pairs() -> None:
    pairs = found([100.0, 1000.0, 200.0], [110.0, 1100.0, 220.0])
    assert pairs.overhead_percent == pytest.approx(10.0)
    assert pairs.interval() == pytest.approx((10.0, 10.0))


def test_the_interval_holds_the_overhead() -> None:
    pairs = found([100.0] * 20, [100.0 + number for number in range(20)])
    low, high = pairs.interval()
    assert 0 < low < pairs.overhead_percent < high < 20


@pytest.mark.parametrize("pinned", [True, False])
def test_it_runs(pinned: bool) -> None:
    before = os.sched_getaffinity(0)
    with running(pinned=pinned) as bench:
        told = measure(bench, 1, 0.1)
    assert os.sched_getaffinity(0) == before
    assert told.capacity > 0 and told.requests > 0
    assert min(*told.plain_cpu_us, *told.mirrored_cpu_us) > 0
    assert told.report["compared"] == told.report["equal"] > 0
