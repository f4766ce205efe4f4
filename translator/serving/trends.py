"""Inference over the last 30 days, as trends for dashboards.

No task runs for it: requests are counted as they end and folded into buckets on demand.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interlingua.schemas import Metrics

_SCALES = ((86_400, 30), (3_600, 24), (60, 60), (1, 60))
"""The seconds of a bucket and the number of buckets, in order."""

_QUANTILES = (
    *(step / 10 for step in range(1, 10)),
    *(0.9 + step / 100 for step in range(1, 10)),
    0.999,
    0.9999,
)
_LATENCIES = 4_096
"""The number of latest requests for the quantiles."""


@dataclass(slots=True)
class _Bucket:
    """One interval. ``cpu`` and ``memory`` are sums of ``looks`` percentages."""

    requests: int = 0
    failed: int = 0
    ns: int = 0
    longest_ns: int = 0
    looks: int = 0
    cpu: float = 0.0
    memory: float = 0.0

    def add(self, other: _Bucket) -> None:
        self.requests += other.requests
        self.failed += other.failed
        self.ns += other.ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.looks += other.looks
        self.cpu += other.cpu
        self.memory += other.memory

    def add_process(self, other: _Bucket) -> None:
        """Add what another process has counted in the same interval: their percentages add up."""
        cpu, memory = (
            _ratio(self.cpu, self.looks) + _ratio(other.cpu, other.looks),
            _ratio(self.memory, self.looks) + _ratio(other.memory, other.looks),
        )
        self.add(other)
        self.looks, self.cpu, self.memory = 1, cpu, memory


_VALUES: dict[str, Callable[[_Bucket, int], float]] = {
    "requests_per_second": lambda bucket, seconds: bucket.requests / seconds,
    "failed_percent": lambda bucket, seconds: 100 * _ratio(bucket.failed, bucket.requests),
    "latency_mean_ms": lambda bucket, seconds: _ratio(bucket.ns, bucket.requests) / 1e6,
    "latency_max_ms": lambda bucket, seconds: bucket.longest_ns / 1e6,
    "cpu_percent": lambda bucket, seconds: _ratio(bucket.cpu, bucket.looks),
    "memory_percent": lambda bucket, seconds: _ratio(bucket.memory, bucket.looks),
}
"""The value of a bucket of so many seconds, by the name of the trend."""


@dataclass(slots=True)
class TrendCounts:
    """The counts of one process, or of several, until ``second``: buckets by their seconds and their number,
    and the latest latencies."""

    second: int
    buckets: dict[int, dict[int, _Bucket]]
    latencies_ns: list[int]

    @classmethod
    def none(cls) -> TrendCounts:
        return cls(0, {seconds: {} for seconds, _ in _SCALES}, [])

    def merge(self, others: TrendCounts) -> None:
        """Count in those of another process of this machine."""
        self.second = max(self.second, others.second)
        for seconds, buckets in others.buckets.items():
            for index, bucket in buckets.items():
                self.buckets[seconds].setdefault(index, _Bucket()).add_process(bucket)
        self.latencies_ns = self.latencies_ns + others.latencies_ns

    def metrics(self) -> Metrics:
        shown = list(self._shown())
        trends = {
            name: tuple(round(value(bucket, seconds), 3) for bucket, seconds in shown)
            for name, value in _VALUES.items()
        }
        latencies = np.fromiter(self.latencies_ns, np.int64) if self.latencies_ns else np.zeros(1, np.int64)
        quantiles = np.quantile(latencies, _QUANTILES) / 1e6
        return Metrics(
            trends, {key: round(float(value), 3) for key, value in zip(_QUANTILES, quantiles, strict=True)}
        )

    def _shown(self) -> Iterator[tuple[_Bucket, int]]:
        for seconds, shown in _SCALES:
            last = self.second // seconds
            buckets = self.buckets[seconds]
            for index in range(last - shown + 1, last + 1):
                yield buckets.get(index, _Bucket()), seconds


class Trends:
    """Counts requests. ``clock`` gives seconds; use on one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = int(clock())
        self._until = self._second + 1.0
        self._current = _Bucket()
        self._taken_ns: list[int] = []  # by requests that are not in the current bucket yet
        self._buckets: dict[int, dict[int, _Bucket]] = {seconds: {} for seconds, _ in _SCALES}
        self._latencies_ns: deque[int] = deque(maxlen=_LATENCIES)
        self._looked = clock(), time.process_time()

    def count(self, ns: int, failed: bool) -> None:
        if (now := self._clock()) >= self._until:
            self._fold(int(now))
        taken = self._taken_ns
        taken.append(ns)
        if failed:
            self._current.failed += 1
        if len(taken) == _LATENCIES:
            self._enter()

    def counts(self) -> TrendCounts:
        """The counts until now; its buckets are those of this object."""
        self._fold(int(self._clock()))
        return TrendCounts(self._second, self._buckets, list(self._latencies_ns))

    def metrics(self) -> Metrics:
        return self.counts().metrics()

    def _fold(self, second: int) -> None:
        """Add the current counts to the buckets of their second, minute, hour and day."""
        self._look()
        self._enter()
        for seconds, shown in _SCALES:
            buckets = self._buckets[seconds]
            buckets.setdefault(self._second // seconds, _Bucket()).add(self._current)
            oldest = second // seconds - shown
            for index in [index for index in buckets if index <= oldest]:
                del buckets[index]
        self._second, self._until, self._current = second, second + 1.0, _Bucket()

    def _enter(self) -> None:
        """Enter requests into the current bucket."""
        taken, bucket = self._taken_ns, self._current
        if taken:
            bucket.requests += len(taken)
            bucket.ns += sum(taken)
            bucket.longest_ns = max(bucket.longest_ns, max(taken))
            self._latencies_ns += taken
            self._taken_ns = []

    def _look(self) -> None:
        """Sample the CPU time since the last look, and the memory."""
        now, cpu = self._clock(), time.process_time()
        since, before = self._looked
        if now - since < 1e-3:
            return
        self._looked = now, cpu
        self._current.looks += 1
        self._current.cpu += 100 * (cpu - before) / (now - since)
        self._current.memory += _memory_percent()


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _memory_percent() -> float:
    """The share of the machine's memory in use by the process; 0 if unavailable."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return 100 * pages / os.sysconf("SC_PHYS_PAGES")
