"""Metrics of models, under Triton's names.

Derived from the statistics of ``runtime`` without calls to upstreams: for an upstream model they are what
this server observed. Triton counts in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from interlingua.runtime.models.inline_runs import InlineRuns
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ErrorCode, RequestStatistics, VersionStatistics
from interlingua.translator.admin.metrics import Family, Sample, latency_samples

_REASONS = {
    ErrorCode.OVERLOADED: "REJECTED",
    ErrorCode.UNAVAILABLE: "REJECTED",
    ErrorCode.DEADLINE_EXCEEDED: "REJECTED",
    ErrorCode.CANCELLED: "CANCELED",
    ErrorCode.MODEL_FAILED: "BACKEND",
    ErrorCode.BAD_UPSTREAM: "BACKEND",
}
"""Triton's reasons of failures; all other codes are ``OTHER``."""


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    """A version of a model that has statistics. ``waiting`` is None if the queue is remote, ``inline`` if no
    run may be on the event loop. ``sequences`` have started and not ended."""

    model: str
    version: str
    statistics: VersionStatistics
    ready: bool
    waiting: int | None
    caches: bool
    inline: InlineRuns | None = None
    sequences: int = 0

    @property
    def labels(self) -> Mapping[str, str]:
        return {"model": self.model, "version": self.version}


def families(catalog: KnownModels) -> Iterator[Family]:
    versions = [
        version for name, target in catalog.models.items() for version in loaded_versions(name, target)
    ]
    yield from _of_triton(versions)
    yield from _inline(versions)
    yield from _readiness(catalog, versions)
    yield _dropped_fields(catalog)
    yield _durations(versions)


def _of_triton(versions: Sequence[LoadedVersion]) -> Iterator[Family]:
    """The families that Triton has, under its names."""
    for name, text, value in _COUNTERS:
        samples = [Sample(value(each.statistics), each.labels) for each in versions]
        yield Family(f"nv_inference_{name}", "counter", text, samples)
    yield Family(
        "nv_inference_request_failure",
        "counter",
        "Failed inference requests, by reason.",
        [
            # like Triton's: labels in alphabetical order
            Sample(count, {"model": each.model, "reason": reason, "version": each.version})
            for each in versions
            for reason, count in _failures(each.statistics).items()
        ],
    )
    yield Family(
        "nv_inference_pending_request_count",
        "gauge",
        "Inference requests waiting for execution.",
        [Sample(each.waiting, each.labels) for each in versions if each.waiting is not None],
    )
    caching = [each for each in versions if each.caches]
    for name, text, value in _CACHE_COUNTERS if caching else ():
        samples = [Sample(value(each.statistics), each.labels) for each in caching]
        yield Family(f"nv_cache_{name}_per_model", "counter", text, samples)


def _inline(versions: Sequence[LoadedVersion]) -> Iterator[Family]:
    inline = [(each.inline, each.labels) for each in versions if each.inline is not None]
    for name, text, count in _INLINE_COUNTERS if inline else ():
        samples = [Sample(count(runs), labels) for runs, labels in inline]
        yield Family(f"interlingua_inline_{name}_total", "counter", text, samples)


def _readiness(catalog: KnownModels, versions: Sequence[LoadedVersion]) -> Iterator[Family]:
    yield Family(
        "interlingua_model_ready",
        "gauge",
        "Whether a version is ready, as last observed for upstream models.",
        [Sample(each.ready, each.labels) for each in versions],
    )
    yield Family(
        "interlingua_models_ready",
        "gauge",
        "Models with at least one ready version.",
        [Sample(len({each.model for each in versions if each.ready}))],
    )
    yield Family(
        "interlingua_models_known",
        "gauge",
        "Models that are served, unloaded, or failed to load.",
        [Sample(len(catalog.names()))],
    )


def _dropped_fields(catalog: KnownModels) -> Family:
    return Family(
        "interlingua_dropped_fields_total",
        "counter",
        "Request fields dropped because the upstream's dialect cannot carry them.",
        [
            Sample(count, {"model": name, "what": kind})
            for name, target in catalog.models.items()
            if target.dropped_fields is not None
            for kind, count in target.dropped_fields.counts.items()
        ],
    )


def _durations(versions: Sequence[LoadedVersion]) -> Family:
    return Family(
        "interlingua_model_duration_seconds",
        "histogram",
        "Time of a model, queue included, for successful requests.",
        [
            sample
            for each in versions
            if any(each.statistics.latencies.counts)
            for sample in latency_samples(each.statistics.latencies, each.labels)
        ],
    )


def loaded_versions(name: str, target: Target) -> Iterator[LoadedVersion]:
    """The versions of ``target`` that have statistics in this process."""
    for number, version in target.loaded.items():
        ready = version.readiness().ready
        waiting, inline = version.waiting, version.inline
        caches, sequences = target.caches, version.sequences
        yield LoadedVersion(name, number, version.statistics, ready, waiting, caches, inline, sequences)
    if target.upstream is not None:
        for number, statistics in target.statistics.items():
            yield LoadedVersion(name, number, statistics, answers(target.upstream), None, False)


def answers(upstream: Upstream) -> bool:
    """Whether it has an available server, as last observed."""
    return any(member.ready and not member.open for member in upstream.pool.members)


def total(statistics: VersionStatistics, part: Callable[[RequestStatistics], int]) -> int:
    """``part`` of the requests of every batch size."""
    return sum(part(each) for each in statistics.by_batch_size.values())


def _failures(statistics: VersionStatistics) -> dict[str, int]:
    reasons = dict.fromkeys(("REJECTED", "CANCELED", "BACKEND", "OTHER"), 0)
    for code, count in statistics.failures.items():
        reasons[_REASONS.get(code, "OTHER")] += count
    return reasons


_Value = Callable[[VersionStatistics], float]

_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    ("request_success", "Successful inference requests.", lambda its: sum(its.latencies.counts)),
    ("count", "Batch elements computed, without cached answers.", attrgetter("inference_count")),
    ("exec_count", "Model executions, one per batch, without cached answers.", attrgetter("execution_count")),
    (
        "request_duration_us",
        "Total time of successful requests in microseconds, cached ones included.",
        lambda its: its.latencies.ns // 1000,
    ),
    *(
        (
            f"{part}_duration_us",
            f"Total {time} time of successful requests in microseconds.",
            lambda its, ns=attrgetter(f"{part}.ns"): total(its, ns) // 1000,
        )
        for part, time in (
            ("queue", "queue"),
            ("compute_input", "input preparation"),
            ("compute_infer", "execution (or upstream)"),
            ("compute_output", "output preparation"),
        )
    ),
)
"""Triton's counters of a version: name after ``nv_inference_``, help, value."""

_INLINE_COUNTERS: tuple[tuple[str, str, Callable[[InlineRuns], float]], ...] = (
    ("runs", "Model executions on the event loop.", attrgetter("runs")),
    ("returns", "Returns of a model to threads after slow runs on the event loop.", attrgetter("returns")),
)
"""Counters of inline runs: name between ``interlingua_inline_`` and ``_total``, help, value."""

_CACHE_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    ("num_hits", "Requests answered from the response cache.", attrgetter("cache_hit.count")),
    ("num_misses", "Requests not found in the response cache.", attrgetter("cache_miss.count")),
    (
        "hit_duration",
        "Total lookup time of cache hits in microseconds.",
        lambda its: its.cache_hit.ns // 1000,
    ),
    (
        "miss_duration",
        "Total lookup and insertion time of cache misses in microseconds.",
        lambda its: its.cache_miss.ns // 1000,
    ),
)
"""The same of the cache: name between ``nv_cache_`` and ``_per_model``, help, value."""
