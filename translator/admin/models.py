"""What operators are told of the models: Triton's metrics, under Triton's names, and a report.

Made of the statistics of ``runtime``, without asking any upstream: what is told of a model that another
server runs is what was seen of it from here. Triton counts in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
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
"""What Triton calls the reasons of failures; whatever is not here is ``OTHER`` there."""

_QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of a model that has statistics. ``waiting`` is None where the queue is elsewhere."""

    model: str
    version: str
    statistics: VersionStatistics
    ready: bool
    waiting: int | None
    caches: bool

    @property
    def labels(self) -> Mapping[str, str]:
        """What tells it apart."""
        return {"model": self.model, "version": self.version}


def families(catalog: ModelCatalog) -> Iterator[Family]:
    """What was counted of the models that are served."""
    versions = [version for name, target in catalog.models.items() for version in _versions(name, target)]
    for name, text, value in _COUNTERS:
        yield Family(
            name, "counter", text, [Sample(value(each.statistics), each.labels) for each in versions]
        )
    yield Family(
        "nv_inference_request_failure",
        "counter",
        "Inference requests that failed, by why.",
        [
            # as Triton has them: names of labels in alphabetical order
            Sample(count, {"model": each.model, "reason": reason, "version": each.version})
            for each in versions
            for reason, count in _failures(each.statistics).items()
        ],
    )
    yield Family(
        "nv_inference_pending_request_count",
        "gauge",
        "Inference requests that wait for their run now.",
        [Sample(each.waiting, each.labels) for each in versions if each.waiting is not None],
    )
    caching = [each for each in versions if each.caches]
    if caching:
        for name, text, value in _CACHE_COUNTERS:
            yield Family(
                name, "counter", text, [Sample(value(each.statistics), each.labels) for each in caching]
            )
    yield Family(
        "interlingua_model_ready",
        "gauge",
        "Whether a version would be run now, as far as is known without asking an upstream.",
        [Sample(each.ready, each.labels) for each in versions],
    )
    yield Family(
        "interlingua_models_ready",
        "gauge",
        "Models of which some version is ready.",
        [Sample(len({each.model for each in versions if each.ready}))],
    )
    yield Family(
        "interlingua_models_known",
        "gauge",
        "Models that are served, were unloaded, or could not be loaded.",
        [Sample(len(catalog.names()))],
    )
    yield Family(
        "interlingua_dropped_fields_total",
        "counter",
        "What was left out of requests because the upstream's dialect has no place for it.",
        [
            Sample(count, {"model": name, "what": kind})
            for name, target in catalog.models.items()
            if isinstance(target, UpstreamModel) and target.dropped_fields is not None
            for kind, count in target.dropped_fields.counts.items()
        ],
    )
    yield Family(
        "interlingua_model_duration_seconds",
        "histogram",
        "Time that a model, its queue included, has taken for requests that were answered.",
        [
            sample
            for each in versions
            if any(each.statistics.latencies.counts)
            for sample in latency_samples(each.statistics.latencies, each.labels)
        ],
    )


async def report(catalog: ModelCatalog) -> dict[str, Any]:
    """Every model that is known, by name: where it runs, its state, its versions and their statistics."""
    return {name: await _model(catalog, name) for name in catalog.names()}


async def _model(catalog: ModelCatalog, name: str) -> dict[str, Any]:
    target = catalog.models.get(name)
    if isinstance(target, UpstreamModel):
        versions = [_told(each, _state(each.ready), "") for each in _versions(name, target)]
        failing = "" if _answers(target) else _last_failure(target)
        return {
            "runs": f"upstream {target.upstream.name}",
            "state": _state(not failing),
            "reason": failing,
            "versions": versions,
        }
    status = await catalog.status(name)  # of a model here, so nobody is asked
    known = {each.version: each for each in ([] if target is None else _versions(name, target))}
    versions = [
        _told(known[each.version], each.state.value, each.reason)
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
    if isinstance(target, LocalModel):
        for number, version in target.loaded.items():
            ready = version.readiness().ready
            yield _Version(name, number, version.statistics, ready, version.waiting, target.caches)
    elif isinstance(target, UpstreamModel):
        for number, statistics in target.statistics.items():
            yield _Version(name, number, statistics, _answers(target), None, False)


def _answers(target: UpstreamModel) -> bool:
    """Whether some server of its upstream takes requests, as far as is known here."""
    return any(member.ready and not member.open for member in target.upstream.pool.members)


def _last_failure(target: UpstreamModel) -> str:
    reasons = [member.reason for member in target.upstream.pool.members if member.reason]
    return reasons[-1] if reasons else "its servers say that they are not ready"


def _state(ready: bool) -> str:
    state = ModelState.READY if ready else ModelState.UNAVAILABLE
    return str(state.value)


def _told(each: _Version, state: str, reason: str) -> dict[str, Any]:
    statistics = each.statistics
    latencies = statistics.latencies
    count = sum(latencies.counts)
    runs = statistics.execution_count
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
        "queue_mean_ms": _mean_ms(statistics, lambda parts: parts.queue.ns),
        "cache_hits": statistics.cache_hit.count,
        "cache_misses": statistics.cache_miss.count,
        "last_inference_ms": statistics.last_inference_ms,
    }


def _mean_ms(statistics: VersionStatistics, part: Callable[[RequestStatistics], int]) -> float | None:
    count = sum(each.queue.count for each in statistics.by_batch_size.values())
    return round(_sum(statistics, part) / count / 1e6, 3) if count else None


def _sum(statistics: VersionStatistics, part: Callable[[RequestStatistics], int]) -> int:
    return sum(part(each) for each in statistics.by_batch_size.values())


def _failures(statistics: VersionStatistics) -> dict[str, int]:
    reasons = dict.fromkeys(("REJECTED", "CANCELED", "BACKEND", "OTHER"), 0)
    for code, count in statistics.failures.items():
        reasons[_REASONS.get(code, "OTHER")] += count
    return reasons


_Value = Callable[[VersionStatistics], float]

_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    (
        "nv_inference_request_success",
        "Inference requests that were answered.",
        lambda counted: sum(counted.latencies.counts),
    ),
    (
        "nv_inference_count",
        "Batch elements that were computed; cached answers are not among them.",
        lambda counted: counted.inference_count,
    ),
    (
        "nv_inference_exec_count",
        "Runs of the model, each of a whole batch; cached answers need none.",
        lambda counted: counted.execution_count,
    ),
    (
        "nv_inference_request_duration_us",
        "Microseconds that answered requests took altogether, cached ones included.",
        lambda counted: counted.latencies.ns // 1000,
    ),
    (
        "nv_inference_queue_duration_us",
        "Microseconds that answered requests waited for their run.",
        lambda counted: _sum(counted, lambda parts: parts.queue.ns) // 1000,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Microseconds that the inputs of answered requests took to be made ready.",
        lambda counted: _sum(counted, lambda parts: parts.compute_input.ns) // 1000,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Microseconds that the runs of answered requests took, or their upstream.",
        lambda counted: _sum(counted, lambda parts: parts.compute_infer.ns) // 1000,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Microseconds that the outputs of answered requests took to be made.",
        lambda counted: _sum(counted, lambda parts: parts.compute_output.ns) // 1000,
    ),
)
"""Triton's counters of a version: their names, what they say of themselves, and how they come about."""

_CACHE_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    (
        "nv_cache_num_hits_per_model",
        "Requests that were answered from the response cache.",
        lambda counted: counted.cache_hit.count,
    ),
    (
        "nv_cache_num_misses_per_model",
        "Requests that the response cache had no answer to.",
        lambda counted: counted.cache_miss.count,
    ),
    (
        "nv_cache_hit_duration_per_model",
        "Microseconds that it took to find answers in the response cache.",
        lambda counted: counted.cache_hit.ns // 1000,
    ),
    (
        "nv_cache_miss_duration_per_model",
        "Microseconds that it took to look in the response cache in vain and to put answers there.",
        lambda counted: counted.cache_miss.ns // 1000,
    ),
)
