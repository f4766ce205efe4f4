"""The requests to an upstream's model, by version, and how they ended.

The upstream reports which version answered: clients may send any text as a version, so a version has counters
only after it has answered. Requests without an answer, not even for metadata, count as well; copies for
mirrors do not.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping

from interlingua.runtime.models.statistics import (
    Course,
    count_failure,
    count_refusal,
    count_success,
    count_successes,
)
from interlingua.schemas import Context, Latencies, VersionStatistics
from interlingua.schemas.status import LATENCY_BOUNDS_NS, UNNAMED_VERSION


class _Pending:
    """Requests with ``size`` batch elements that ``version`` answered, not entered yet: their ``latencies``,
    the part of them for ``output_ns``, and when the last one ended, a ``time.monotonic_ns()``."""

    __slots__ = ("ended", "latencies", "output_ns", "size", "version")

    def __init__(self, version: str, size: int) -> None:
        self.version = version
        self.size = size
        self.latencies = Latencies()
        self.output_ns = self.ended = 0


class UpstreamCounts:
    """The counters of one model. ``answered`` is the version that answered last."""

    def __init__(self) -> None:
        self.answered = UNNAMED_VERSION
        self._by_version: dict[str, VersionStatistics] = {}
        self._pending = _Pending("", 0)

    @property
    def by_version(self) -> Mapping[str, VersionStatistics]:
        """The statistics until now."""
        self._enter_pending()
        return self._by_version

    def of(self, version: str) -> VersionStatistics:
        """The statistics of ``version`` until now."""
        self._enter_pending()
        return self._find(version)

    def _find(self, version: str) -> VersionStatistics:
        found = self._by_version.get(version)
        if found is None:
            found = self._by_version[version] = VersionStatistics()
        return found

    def repeated(self, version: str, size: int, ns: int, output_ns: int, ended: int) -> None:
        """As :meth:`success`, of a request that ``ended`` just now, a ``time.monotonic_ns()``, and waited for
        nothing: all of its ``ns`` are the upstream's but ``output_ns``. Most are like the one before, so they
        are entered together, when the statistics are read."""
        if version:
            self.answered = version
        pending = self._pending
        if pending.version != self.answered or pending.size != size:
            self._enter_pending()
            pending = self._pending = _Pending(self.answered, size)
        latencies = pending.latencies
        latencies.counts[bisect_left(LATENCY_BOUNDS_NS, ns)] += 1
        latencies.ns += ns
        pending.output_ns += output_ns
        pending.ended = ended

    def _enter_pending(self) -> None:
        last = self._pending
        if last.ended:
            last_ms = (time.time_ns() - time.monotonic_ns() + last.ended) // 1_000_000
            count_successes(self._find(last.version), last.size, last.latencies, last.output_ns, last_ms)
            self._pending = _Pending(last.version, last.size)

    def success(self, version: str, size: int, course: Course, context: Context) -> None:
        """Count a request of ``size`` batch elements, with ``context``, that ``version`` answered (empty:
        unknown)."""
        self.answered = version or self.answered
        if not context.copied:
            count_success(self._by_version.get(self.answered) or self._find(self.answered), size, course)

    def streamed(self, size: int, began: int, context: Context) -> None:
        """Count a request that a stream answered."""
        now = time.monotonic_ns()
        context.timings["upstream"], context.ended["upstream"] = now - began, now
        self.success("", size, (began, began, began, now, now, 0), context)

    def failure(self, version: str, size: int, began: int, end: BaseException, context: Context) -> None:
        """Count a request for ``version`` that ended without an answer: by an error or a disconnected
        caller."""
        if not context.copied:
            count_failure(self._of_version(version), size, began, end)

    def refused(self, version: str, context: Context) -> None:
        """Count a request that does not fit the signature, which is not a failure of the model."""
        if not context.copied:
            count_refusal(self._of_version(version))

    def _of_version(self, version: str) -> VersionStatistics:
        return self._find(version if version in self.by_version else self.answered)
