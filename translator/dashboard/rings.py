"""Traffic over time: intervals of a second, ten seconds and a minute, each for a while, in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

from interlingua.translator.dashboard.traffic import Counts, Traffic, Way


class Scale(NamedTuple):
    """Intervals of ``secs``; ``kept`` of them."""

    secs: int
    kept: int


SCALES = (Scale(1, 600), Scale(10, 720), Scale(60, 1440))
"""10 minutes, 2 hours, 24 hours."""

MAX_WAYS = 48
"""The ways of one interval that are kept apart; the others add up to one for each dialect. With all of them
in use at any time, a day takes about 30 MB."""

OTHERS = "(others)"
"""The model of the ways that are not kept apart."""


@dataclass(slots=True)
class Interval:
    """What happened from ``start``, in seconds since 1970, for ``secs``. ``ways`` has failures and latencies
    as :data:`Counts`; ``waiting`` and ``limited`` are the longest queues, by model and by upstream."""

    start: float
    secs: float = 0.0
    ways: dict[Way, array[int]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    limited: dict[str, int] = field(default_factory=dict)

    def add(self, later: Interval) -> None:
        """Count in ``later``."""
        self.secs += later.secs
        for way, counts in later.ways.items():
            self._add(way, counts)
        for own, more in ((self.waiting, later.waiting), (self.limited, later.limited)):
            for name, count in more.items():
                own[name] = max(own.get(name, 0), count)

    def cut(self) -> None:
        """Keep the busiest ways apart, and the longest queues."""
        if len(self.ways) > MAX_WAYS:
            busiest = set(nlargest(MAX_WAYS, self.ways, key=lambda way: sum(self.ways[way][1:])))
            for way in [way for way in self.ways if way not in busiest]:
                self._add(Way(way.dialect, "", OTHERS, ""), self.ways.pop(way))
        for queues in (self.waiting, self.limited):
            if len(queues) > MAX_WAYS:
                longest = set(nlargest(MAX_WAYS, queues, key=queues.__getitem__))
                for name in [name for name in queues if name not in longest]:
                    queues[OTHERS] = queues.get(OTHERS, 0) + queues.pop(name)

    def _add(self, way: Way, counts: array[int]) -> None:
        known = self.ways.get(way)
        if known is None:
            self.ways[way] = array("I", counts)
        else:
            for place, count in enumerate(counts):
                known[place] += count


class Rings:
    """The intervals of every scale. Use on one thread."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[Interval]] = {each.secs: deque(maxlen=each.kept) for each in SCALES}
        self._before: Mapping[Way, Counts] | None = None
        self._at = 0.0

    def sample(self, traffic: Traffic, now: float) -> None:
        """Add what has happened since the last sample, at ``now`` in seconds since 1970."""
        before, began = self._before, self._at
        self._before, self._at = dict(traffic.ways), now
        if now < began:
            self._forget_after(now)
        if before is None or now <= began:
            # the counts began before the first sample, and how long ago the last one was is unknown
            return
        latest = Interval(began, now - began, waiting=dict(traffic.waiting), limited=dict(traffic.limited))
        for way, counts in traffic.ways.items():
            known = before.get(way)
            if counts == known:
                continue
            grown = counts if known is None else tuple(map(int.__sub__, counts, known))
            # a count that has decreased began again
            if any(grown) and min(grown) >= 0:
                latest.ways[way] = array("I", grown)
        latest.cut()
        for scale, kept in self._kept.items():
            start = math.floor(began / scale) * scale
            if not kept or kept[-1].start != start:
                kept.append(Interval(start))
            kept[-1].add(latest)
            kept[-1].cut()

    def _forget_after(self, now: float) -> None:
        """The clock was set back to ``now``: drop the intervals that are dated later."""
        for kept in self._kept.values():
            while kept and kept[-1].start > now:
                kept.pop()

    def intervals(self, scale: int, after: float = 0.0) -> Iterator[Interval]:
        """Those of ``scale`` seconds that start later than ``after``, the oldest first. The last one may not
        be over."""
        return (each for each in self._kept[scale] if each.start > after)
