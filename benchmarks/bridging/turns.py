"""Measures a row: its server and its baselines in turns, so that a busy neighbour hits all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.bridging.servers import Servers
from benchmarks.bridging.table import Row
from benchmarks.bridging.traffic import Traffic

ROUNDS, QUICK_ROUNDS = 7, 3
QUICK_SHARE = 2
"""A quick turn has this part of the requests. Every turn opens connections: with few requests on each, a
row would measure that."""


@dataclass(frozen=True)
class Found:
    """CPU microseconds per request, medians over the rounds; ``ratio``: the median ratio of a round."""

    row: str
    us: float
    peer: str
    peer_us: float | None
    ratio: float | None
    target: float | None

    @property
    def verdict(self) -> str:
        """Whether the ratio is within its target."""
        if self.ratio is None:
            return "not installed"
        if self.target is None:
            return "for comparison"
        return "ok" if self.ratio <= self.target else "over"


def measure(row: Row, servers: Servers, traffic: Traffic, quick: bool) -> Iterator[Found]:
    """One result for each baseline."""
    count = max(32, row.count // QUICK_SHARE) if quick else row.count
    rounds = QUICK_ROUNDS if quick else ROUNDS
    contenders = [(servers[row.server], row.request())]
    contenders += [(servers[each.server], row.request(each)) for each in row.baselines]
    costs: list[list[float]] = [[] for _ in contenders]
    for turn in range(-1, rounds):
        for cost, (server, request) in zip(costs, contenders, strict=True):
            if server is None:
                continue
            # the first turn warms up
            us = traffic.cost_us(server, request, max(32, count // 4) if turn < 0 else count)
            if turn >= 0:
                cost.append(us)
    us = round(statistics.median(costs[0]), 1)
    for baseline, cost in zip(row.baselines, costs[1:], strict=True):
        if not cost:
            yield Found(row.title, us, baseline.server, None, None, baseline.target)
            continue
        ratio = statistics.median(one / other for one, other in zip(costs[0], cost, strict=True))
        peer_us = round(statistics.median(cost), 1)
        yield Found(row.title, us, baseline.server, peer_us, round(ratio, 2), baseline.target)
