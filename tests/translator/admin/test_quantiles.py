"""Quantiles of what was counted by ranges, against those of the values themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interlingua.schemas import Latencies
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.admin.quantiles import quantile_ms


def counted(*values: int) -> Latencies:
    latencies = Latencies()
    for ns in values:
        latencies.add(ns)
    return latencies


def test_none_have_none() -> None:
    assert quantile_ms(Latencies(), 0.5) is None


def test_even_within_a_range() -> None:
    assert quantile_ms(counted(1, 2), 0.5) == 0.025
    assert quantile_ms(counted(60_000, 70_000), 1.0) == 0.1


def test_above_all_bounds_is_the_last() -> None:
    assert quantile_ms(counted(10**12), 0.5) == 10_000


@given(
    st.lists(st.integers(0, LATENCY_BOUNDS_NS[-1]), min_size=1),
    st.floats(0.01, 1.0),
)
def test_it_lies_in_the_range_of_the_true_one(values: list[int], quantile: float) -> None:
    true = float(np.quantile(values, quantile, method="inverted_cdf"))
    place = int(np.searchsorted(LATENCY_BOUNDS_NS, true))
    low = LATENCY_BOUNDS_NS[place - 1] if place else 0
    found = quantile_ms(counted(*values), quantile)
    assert found is not None
    assert low / 1e6 - 1e-3 <= found <= LATENCY_BOUNDS_NS[place] / 1e6 + 1e-3
