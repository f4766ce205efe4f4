"""Quantiles of latencies that were counted by ranges."""

from __future__ import annotations

from itertools import accumulate

from interlingua.schemas import Latencies
from interlingua.schemas.status import LATENCY_BOUNDS_NS


def quantile_ms(latencies: Latencies, quantile: float) -> float | None:
    """The latency in milliseconds below which the share ``quantile`` (0 to 1) of them lies, taken as even
    within a range, which is as exact as the ranges are narrow. Above the last bound it is that bound. None
    where there are none."""
    below = list(accumulate(latencies.counts))
    rank = quantile * below[-1]
    if not below[-1]:
        return None
    place = next(place for place, count in enumerate(below) if count >= rank and count)
    if place == len(LATENCY_BOUNDS_NS):
        return LATENCY_BOUNDS_NS[-1] / 1e6
    low = LATENCY_BOUNDS_NS[place - 1] if place else 0
    inside = (rank - (below[place] - latencies.counts[place])) / latencies.counts[place]
    return round((low + inside * (LATENCY_BOUNDS_NS[place] - low)) / 1e6, 3)
