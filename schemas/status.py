"""Reports about models: configuration, states of versions, statistics. Counters never decrease; times are in
nanoseconds, as in both protocols that report them."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from interlingua.schemas.errors import ErrorCode

LATENCY_BOUNDS_NS = tuple(
    int(ms * 1e6) for ms in (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000)
)
"""The upper bounds of the ranges of latencies, ascending; the last range is unbounded."""


class ModelState(enum.Enum):
    """The state of one version of a model."""

    UNKNOWN = "UNKNOWN"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"

    __hash__ = object.__hash__


class ServerState(enum.Enum):
    """The state of the whole server."""

    INITIALIZING = "INITIALIZING"
    READY = "READY"
    EXITING = "EXITING"

    __hash__ = object.__hash__


@dataclass(slots=True)
class Duration:
    """A count of events and their total time."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Count one more that took ``ns``."""
        self.count += 1
        self.ns += ns

    def merge(self, others: Duration) -> None:
        """Count in ``others``."""
        self.count += others.count
        self.ns += others.ns


@dataclass(slots=True)
class Latencies:
    """A histogram: ``counts`` by the ranges of ``LATENCY_BOUNDS_NS``, bounds included, and the total time
    ``ns``."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_NS) + 1))
    ns: int = 0

    def add(self, ns: int) -> None:
        """Count one of ``ns``."""
        self.counts[bisect_left(LATENCY_BOUNDS_NS, ns)] += 1
        self.ns += ns

    def merge(self, others: Latencies) -> None:
        """Count in ``others``."""
        self.counts = [count + more for count, more in zip(self.counts, others.counts, strict=True)]
        self.ns += others.ns


@dataclass(slots=True)
class RequestStatistics:
    """Requests of one batch size. ``success`` and ``failed`` are whole requests; the others are the parts of
    the successful ones."""

    success: Duration = field(default_factory=Duration)
    failed: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class ExecutionStatistics:
    """Runs of a model with one batch size, and the parts of the successful ones."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


def _merge_durations(
    statistics: RequestStatistics | ExecutionStatistics, others: RequestStatistics | ExecutionStatistics
) -> None:
    for each in fields(statistics):
        getattr(statistics, each.name).merge(getattr(others, each.name))


@dataclass(slots=True)
class VersionStatistics:
    """One version of a model. ``inference_count`` counts batch elements, ``execution_count`` runs of the
    model; ``last_inference_ms`` is milliseconds since 1970, 0 for never. ``by_batch_size`` is by the batch
    size of a request, ``executions`` by that of a run, which may have several requests; a model without
    batches has size 1. ``cache_hit`` are requests answered from the response cache, which also count as
    successes and in ``queue``, ``cache_miss`` lookups without a result. ``latencies`` are those of the
    successes, ``failures`` counts the others by code. ``refused`` counts requests that contradict the
    signature; they never reach the model, so they are not failures."""

    inference_count: int = 0
    execution_count: int = 0
    last_inference_ms: int = 0
    by_batch_size: dict[int, RequestStatistics] = field(default_factory=dict)
    executions: dict[int, ExecutionStatistics] = field(default_factory=dict)
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)
    latencies: Latencies = field(default_factory=Latencies)
    failures: dict[ErrorCode, int] = field(default_factory=dict)
    refused: int = 0

    def merge(self, others: VersionStatistics) -> None:
        """Count in ``others``: what another process has counted of the same version."""
        self.inference_count += others.inference_count
        self.execution_count += others.execution_count
        self.last_inference_ms = max(self.last_inference_ms, others.last_inference_ms)
        for size, requests in others.by_batch_size.items():
            _merge_durations(self.by_batch_size.setdefault(size, RequestStatistics()), requests)
        for size, runs in others.executions.items():
            _merge_durations(self.executions.setdefault(size, ExecutionStatistics()), runs)
        self.cache_hit.merge(others.cache_hit)
        self.cache_miss.merge(others.cache_miss)
        self.latencies.merge(others.latencies)
        for code, count in others.failures.items():
            self.failures[code] = self.failures.get(code, 0) + count
        self.refused += others.refused


UNNAMED_VERSION = "1"
"""The version of a model on a server that reports none, for dialects that cannot leave it out."""


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """A known version; ``reason`` says why it is not ready."""

    version: str
    state: ModelState
    reason: str = ""
    statistics: VersionStatistics = field(default_factory=VersionStatistics)


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A known model. ``config`` is a serialized ``inference.ModelConfig`` with the defaults of the server;
    v1's fields have the same numbers in its own ModelConfig. Empty for a model that was never loaded.
    ``elsewhere``: it is on an upstream server, and steps of an ensemble name models of that server."""

    name: str
    config: bytes = b""
    versions: tuple[VersionStatus, ...] = ()
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The whole server. ``requests`` counts requests by operation name."""

    id: str
    state: ServerState
    uptime_ns: int
    models: Mapping[str, ModelStatus]
    requests: Mapping[str, Duration] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedMemoryRegion:
    """A registered region: ``byte_size`` bytes from ``offset`` of the POSIX object ``key``."""

    name: str
    key: str
    offset: int
    byte_size: int


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """An address that clients connect to: `host:port`, or `unix:path`."""

    transport: str
    address: str
    dialects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The served models and listeners. ``default_model`` is for requests without a name; empty for none."""

    models: Mapping[str, ModelStatus]
    default_model: str = ""
    listeners: tuple[ListenerAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics over time. ``trends`` have one value each for the last 30 days, 24 hours, 60 minutes and 60
    seconds, in that order, by name, the latest of each kind last; ``latencies_ms`` are milliseconds by
    quantile (0.1 to 0.9999), of the last requests."""

    trends: Mapping[str, tuple[float, ...]]
    latencies_ms: Mapping[float, float]
