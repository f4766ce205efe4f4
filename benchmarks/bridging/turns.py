"""Measures a row: its server and its baselines in turns, so that a busy neighbour hits all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.bridging.servers import Servers
from benchmarks.bridging.table import Row
from benchmarks.bridging.traffic import Traffic

ROUNDS, QUICK_ROUNDS = 7, 3
QUICK_SHARE = 2
"""A quick turn has this part of the requests. Every turn opens connections: with few requests on each, a
row would measure that."""


@dataclass(frozen=True)
class Found:
    """CPU microseconds per request, medians over the rounds; ``ratio``: the median ratio of a round,
    ``added_us`` the median difference. A row with a ``target_us`` meets one of its two targets."""

    row: str
    us: float
    peer: str
    peer_us: float | None
    ratio: float | None
    target: float | None
    added_us: float | None = None
    target_us: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the ratio, or what is added, is within its target."""
        if self.ratio is None:
            return "not installed"
        if self.target is None:
            return "for comparison"
        little = self.added_us is not None and self.target_us is not None and self.added_us <= self.target_us
        return "ok" if self.ratio <= self.target or little else "over"


Cost = Callable[[int], float]
"""The CPU microseconds of a request, of so many."""


def in_turns(contenders: Sequence[Cost | None], count: int, rounds: int) -> list[list[float]]:
    """The costs of each contender by round, none for one that is missing."""
    costs: list[list[float]] = [[] for _ in contenders]
    for turn in range(-1, rounds):
        for found, cost in zip(costs, contenders, strict=True):
            if cost is None:
                continue
            # the first turn warms up
            us = cost(max(32, count // 4) if turn < 0 else count)
            if turn >= 0:
                found.append(us)
    return costs


def measure(row: Row, servers: Servers, traffic: Traffic, quick: bool) -> Iterator[Found]:
    """One result for each baseline."""
    count = max(32, row.count // QUICK_SHARE) if quick else row.count
    rounds = QUICK_ROUNDS if quick else ROUNDS
    contenders = [(servers[row.server], row.request())]
    contenders += [(servers[each.server], row.request(each)) for each in row.baselines]
    costs = in_turns(
        [server and partial(traffic.cost_us, server, request) for server, request in contenders],
        count,
        rounds,
    )
    us = round(statistics.median(costs[0]), 1)
    for baseline, cost in zip(row.baselines, costs[1:], strict=True):
        if not cost:
            yield Found(row.title, us, baseline.server, None, None, baseline.target)
            continue
        ratio = statistics.median(one / other for one, other in zip(costs[0], cost, strict=True))
        peer_us = round(statistics.median(cost), 1)
        yield Found(row.title, us, baseline.server, peer_us, round(ratio, 2), baseline.target)
