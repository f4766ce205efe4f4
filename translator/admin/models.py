"""Metrics of models, under Triton's names, and a report.

Derived from the statistics of ``runtime`` without calls to upstreams: for an upstream model they are what
this server observed. Triton counts in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from interlingua.runtime.models.inline_runs import InlineRuns
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ErrorCode, ModelState, RequestStatistics, VersionStatistics
from interlingua.translator.admin.metrics import Family, Sample, latency_samples
from interlingua.translator.admin.quantiles import quantile_ms

_REASONS = {
    ErrorCode.OVERLOADED: "REJECTED",
    ErrorCode.UNAVAILABLE: "REJECTED",
    ErrorCode.DEADLINE_EXCEEDED: "REJECTED",
    ErrorCode.CANCELLED: "CANCELED",
    ErrorCode.MODEL_FAILED: "BACKEND",
    ErrorCode.BAD_UPSTREAM: "BACKEND",
}
"""Triton's reasons of failures; all other codes are ``OTHER``."""

_QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of a model that has statistics. ``waiting`` is None if the queue is remote, ``inline`` if no
    run may be on the event loop."""

    model: str
    version: str
    statistics: VersionStatistics
    ready: bool
    waiting: int | None
    caches: bool
    inline: InlineRuns | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        return {"model": self.model, "version": self.version}


def families(catalog: KnownModels) -> Iterator[Family]:
    versions = [version for name, target in catalog.models.items() for version in _versions(name, target)]
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
    inline = [(each.inline, each.labels) for each in versions if each.inline is not None]
    for name, text, count in _INLINE_COUNTERS if inline else ():
        samples = [Sample(count(runs), labels) for runs, labels in inline]
        yield Family(f"interlingua_inline_{name}_total", "counter", text, samples)
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
    yield Family(
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
    yield Family(
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


async def report(catalog: KnownModels) -> dict[str, Any]:
    """Every known model by name: where it runs, its state, its versions and their statistics."""
    return {name: await _model(catalog, name) for name in catalog.names()}


async def _model(catalog: KnownModels, name: str) -> dict[str, Any]:
    target = catalog.models.get(name)
    if target is not None and target.upstream is not None:
        versions = [_report(each, _state(each.ready), "") for each in _versions(name, target)]
        failing = "" if _answers(target.upstream) else _last_failure(target.upstream)
        return {
            "runs": f"upstream {target.upstream.name}",
            "state": _state(not failing),
            "reason": failing,
            "versions": versions,
        }
    status = await catalog.status(name)  # a local model: no network I/O
    known = {each.version: each for each in ([] if target is None else _versions(name, target))}
    versions = [
        _report(known[each.version], each.state.value, each.reason)
        if each.version in known
        else {"version": each.version, "state": each.state.value, "reason": each.reason}
        for each in (() if status is None else status.versions)
    ]
    ready = any(each["state"] == ModelState.READY.value for each in versions)
    return {
        "runs": "here",
        "state": _state(ready),
        "reason": catalog.absence(name) if target is None else "",
        "versions": versions,
    }


def _versions(name: str, target: Target) -> Iterator[_Version]:
    for number, version in target.loaded.items():
        ready = version.readiness().ready
        waiting, inline = version.waiting, version.inline
        yield _Version(name, number, version.statistics, ready, waiting, target.caches, inline)
    if target.upstream is not None:
        for number, statistics in target.statistics.items():
            yield _Version(name, number, statistics, _answers(target.upstream), None, False)


def _answers(upstream: Upstream) -> bool:
    """Whether it has an available server, as last observed."""
    return any(member.ready and not member.open for member in upstream.pool.members)


def _last_failure(upstream: Upstream) -> str:
    reasons = [member.reason for member in upstream.pool.members if member.reason]
    return reasons[-1] if reasons else "its servers report not ready"


def _state(ready: bool) -> str:
    state = ModelState.READY if ready else ModelState.UNAVAILABLE
    return str(state.value)


def _report(each: _Version, state: str, reason: str) -> dict[str, Any]:
    statistics = each.statistics
    latencies = statistics.latencies
    count = sum(latencies.counts)
    runs = statistics.execution_count
    queue_ns, queued = attrgetter("queue.ns"), _sum(statistics, attrgetter("queue.count"))
    return {
        "version": each.version,
        "state": state,
        "reason": reason,
        "requests": count,
        "failures": {code.name: number for code, number in statistics.failures.items()},
        "refused": statistics.refused,
        "waiting": each.waiting,
        "latency_mean_ms": round(latencies.ns / count / 1e6, 3) if count else None,
        "latency_ms": {str(q): quantile_ms(latencies, q) for q in _QUANTILES} if count else {},
        "inferences": statistics.inference_count,
        "executions": runs,
        "batch_size_mean": round(statistics.inference_count / runs, 2) if runs else None,
        "batch_size_max": max(statistics.executions, default=None),
        "queue_mean_ms": round(_sum(statistics, queue_ns) / queued / 1e6, 3) if queued else None,
        "cache_hits": statistics.cache_hit.count,
        "cache_misses": statistics.cache_miss.count,
        "last_inference_ms": statistics.last_inference_ms,
    }


def _sum(statistics: VersionStatistics, part: Callable[[RequestStatistics], int]) -> int:
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
            lambda its, ns=attrgetter(f"{part}.ns"): _sum(its, ns) // 1000,
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
