"""Traffic over time, as pages have it: rates, latencies and queues of inferences, of all or of some ways."""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import numpy as np

from interlingua.schemas import Latencies
from interlingua.translator.admin.handler import QueryError
from interlingua.translator.admin.quantiles import quantile_ms
from interlingua.translator.dashboard.rings import SCALES, Interval, Rings
from interlingua.translator.dashboard.traffic import BUCKETS, Traffic, Way

RANGES: Mapping[str, int] = {"1m": 60, "10m": 600, "1h": 3600, "2h": 7200, "6h": 21_600, "24h": 86_400}
"""Seconds by the name that queries use."""

SAMPLE_SECS = 1.0

QUANTILES = (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))

_log = logging.getLogger(__name__)


class Selection(NamedTuple):
    """A range, and the ways whose fields have these values; None for any."""

    range_secs: int = RANGES["10m"]
    dialect: str | None = None
    route: str | None = None
    model: str | None = None
    upstream: str | None = None

    @classmethod
    def of_query(cls, query: str) -> Selection:
        """Raises ``QueryError``."""
        given = dict(parse_qsl(query, keep_blank_values=True))
        name = given.pop("range", "10m")
        if name not in RANGES:
            raise QueryError(f"range: one of {', '.join(RANGES)}")
        if unknown := given.keys() - set(Way._fields):
            raise QueryError(
                f"unknown: {', '.join(sorted(unknown))}; there are range, {', '.join(Way._fields)}"
            )
        return cls(RANGES[name], **given)

    @property
    def scale(self) -> int:
        """The seconds of an interval: the finest that are kept for the range."""
        return next(each.secs for each in SCALES if each.secs * each.kept >= self.range_secs)

    def matches(self, way: Way) -> bool:
        return (
            self.model in (None, way.model)
            and self.upstream in (None, way.upstream)
            and self.dialect in (None, way.dialect)
            and self.route in (None, way.route)
        )


class History:
    """Samples what ``collect`` returns once per second. Use on one event loop."""

    def __init__(
        self, collect: Callable[[], Awaitable[Traffic]], clock: Callable[[], float] = time.time
    ) -> None:
        self._collect = collect
        self._clock = clock
        self._rings = Rings()
        self._sampling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sample from now on."""
        if self._sampling is None:
            self._sampling = asyncio.get_running_loop().create_task(self._sample_forever())

    async def close(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
            with suppress(asyncio.CancelledError):
                await self._sampling

    async def sample(self) -> None:
        """Take one sample now."""
        self._rings.sample(await self._collect(), self._clock())

    async def _sample_forever(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:
                _log.exception("traffic not sampled")
            await asyncio.sleep(SAMPLE_SECS)

    def points(self, selection: Selection, since: float = 0.0) -> dict[str, list[float | None]]:
        """The values of each interval in columns. Those that start at ``since`` or later."""
        oldest = max(self._clock() - selection.range_secs - selection.scale, since)
        columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}
        for interval in self._rings.intervals(selection.scale):
            if interval.start >= oldest:
                for name, value in _point(interval, selection).items():
                    columns[name].append(value)
        return columns

    def ways(self, selection: Selection) -> list[dict[str, Any]]:
        """The totals of every way in the range, the busiest first, whatever ways are selected."""
        oldest = self._clock() - selection.range_secs - selection.scale
        added: defaultdict[Way, list[array[int]]] = defaultdict(list)
        for interval in self._rings.intervals(selection.scale, oldest):
            for way, counts in interval.ways.items():
                added[way].append(counts)
        found = {way: summed(each) for way, each in added.items()}
        described = [
            {
                **way._asdict(),
                "requests": sum(counts[1:]),
                "failed": counts[0],
                **_quantiles(counts),
            }
            for way, counts in found.items()
        ]
        return sorted(described, key=lambda each: -each["requests"])

    def page(self, query: str) -> dict[str, Any]:
        """The page ``/history``. Raises ``QueryError``."""
        selection = Selection.of_query(query)
        return {
            "range_secs": selection.range_secs,
            "interval_secs": selection.scale,
            "points": self.points(selection),
            "ways": self.ways(selection),
        }


COLUMNS = ("time", "requests_per_sec", "failed_per_sec", *(name for name, _ in QUANTILES), "waiting")
"""The values of an interval: its start in seconds since 1970, rates, latencies in milliseconds, and the
longest queue of the models and upstreams that the selected ways lead to."""


def _point(interval: Interval, selection: Selection) -> dict[str, float | None]:
    added = []
    everything = selection[1:] == (None,) * 4
    models, upstreams = set(), set()
    for way, counts in interval.ways.items():
        if everything or selection.matches(way):
            added.append(counts)
            models.add(way.model)
            upstreams.add(way.upstream)
    models.add(selection.model or "")
    upstreams.add(selection.upstream or "")
    secs = interval.secs or 1.0
    total = summed(added)
    return {
        "time": interval.start,
        "requests_per_sec": round(sum(total[1:]) / secs, 3),
        "failed_per_sec": round(total[0] / secs, 3),
        **_quantiles(total),
        "waiting": _waiting(interval.waiting, models, everything)
        + _waiting(interval.limited, upstreams, everything),
    }


def _waiting(queues: Mapping[str, int], names: set[str], everything: bool) -> int:
    return sum(count for name, count in queues.items() if everything or name in names)


def summed(added: Iterable[array[int]]) -> list[int]:
    """The sum of the counts of intervals, place by place."""
    table = np.frombuffer(b"".join(added), np.uintc).reshape(-1, BUCKETS + 1)
    total: list[int] = table.sum(0, dtype=np.uint64).tolist()
    return total


def _quantiles(counts: list[int]) -> dict[str, float | None]:
    latencies = Latencies(counts[1:])
    return {name: quantile_ms(latencies, quantile) for name, quantile in QUANTILES}
