"""The counts of requests: begun, ended, how long, how many bytes. Nothing else adds to them.

The statistics of ``runtime`` count by model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from interlingua.protocols.transport.load import ListenerLoad
from interlingua.schemas import Context, ErrorCode, Operation
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.serving.request_metrics import RequestMetrics

_ANSWERED = Operation.INFER, None


class Account:
    """Counts the requests of one dialect of a listener, in its ``metrics`` and in the load of the listener
    and of the process."""

    __slots__ = ("load", "metrics", "total")

    def __init__(self, metrics: RequestMetrics) -> None:
        self.metrics = metrics
        self.load: ListenerLoad = metrics.load
        self.total = metrics.load.total

    def begin(self, nbytes: int) -> None:
        """A request of ``nbytes`` has begun."""
        metrics = self.metrics
        metrics.in_flight += 1
        metrics.received_bytes += nbytes
        self.load.requests += 1
        self.total.requests += 1

    def admit(self, nbytes: int) -> bool:
        """The same for an inference, unless it is above a limit. Whether it has begun."""
        metrics, load, total = self.metrics, self.load, self.total
        if load.requests >= load.max_requests or total.requests >= total.max_requests:
            return False
        metrics.in_flight += 1
        metrics.received_bytes += nbytes
        load.requests += 1
        total.requests += 1
        return True

    def withdraw(self, nbytes: int) -> None:
        """It has not: something else counts it."""
        metrics = self.metrics
        metrics.in_flight -= 1
        metrics.received_bytes -= nbytes
        self.load.requests -= 1
        self.total.requests -= 1

    def end(self, operation: Operation | None, code: ErrorCode | None) -> None:
        """A request has ended; ``operation`` is None for one that was not opened, ``code`` for a success."""
        metrics = self.metrics
        metrics.in_flight -= 1
        self.load.requests -= 1
        self.total.requests -= 1
        metrics.ended[operation, code] += 1

    def succeed(self, sent: int, flow: tuple[int, str], spent: int, stages: Mapping[str, int]) -> None:
        """An inference has ended with a response of ``sent`` bytes; the rest is as in :meth:`time`."""
        metrics = self.metrics
        metrics.in_flight -= 1
        self.load.requests -= 1
        self.total.requests -= 1
        metrics.ended[_ANSWERED] += 1
        metrics.sent_bytes += sent
        if metrics.timed:
            self.time(flow, spent, stages)

    def time(
        self, flow: tuple[int, str], spent: int, stages: Mapping[str, int], failed: bool = False
    ) -> None:
        """An inference has taken ``spent`` ns, those of ``stages`` in each; ``flow`` is the number of its
        route, and its model."""
        metrics = self.metrics
        if not metrics.timed:
            return
        durations = metrics.flows[flow]
        durations.counts[bisect_left(LATENCY_BOUNDS_NS, spent)] += 1
        durations.ns += spent
        if failed:
            durations.failed += 1
        for stage, ns in stages.items():
            latencies = metrics.stages[stage]
            latencies.counts[bisect_left(LATENCY_BOUNDS_NS, ns)] += 1
            latencies.ns += ns

    def exemplify(self, context: Context, spent: int) -> None:
        """Keep a sampled inference as the exemplar of its duration."""
        if self.metrics.timed and context.trace is not None:
            self.metrics.exemplify(f"{context.trace.trace_id:032x}", spent)
