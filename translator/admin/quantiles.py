"""Quantiles of latencies from histogram buckets."""

from __future__ import annotations

from itertools import accumulate

from interlingua.schemas import Latencies
from interlingua.schemas.status import LATENCY_BOUNDS_NS


def quantile_ms(latencies: Latencies, quantile: float) -> float | None:
    """The ``quantile`` (0 to 1) of ``latencies`` in milliseconds, interpolated linearly within its bucket; at
    most the last bound. None if there are no latencies."""
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
