"""The report of models: where each runs, its state, its versions and their statistics.

``collect`` looks at the models of one process, ``merge`` makes one report of several, ``render`` the values
for JSON. For an upstream model the state is what this server has observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ModelState, VersionStatistics
from interlingua.translator.admin.models import LoadedVersion, answers, loaded_versions, total
from interlingua.translator.admin.quantiles import quantile_ms

_QUANTILES = (0.5, 0.9, 0.99)

_READY = ModelState.READY.value
_UNAVAILABLE = ModelState.UNAVAILABLE.value

LOCAL = "here"


@dataclass(slots=True)
class VersionReport:
    """A version; ``waiting`` is None if the queue is remote, ``statistics`` if it has none."""

    state: str
    reason: str = ""
    waiting: int | None = None
    statistics: VersionStatistics | None = None
    sequences: int = 0


@dataclass(slots=True)
class ModelReport:
    """A model. It ``runs`` here or on an upstream."""

    runs: str
    state: str
    reason: str = ""
    versions: dict[str, VersionReport] = field(default_factory=dict)


ModelReports = dict[str, ModelReport]
"""By name."""


async def collect(catalog: KnownModels) -> ModelReports:
    """Every known model."""
    return {name: await _model(catalog, name) for name in catalog.names()}


def collect_here(catalog: KnownModels) -> ModelReports:
    """Every model that a front end knows; of those in the runtime process only whether they are ready."""
    found: ModelReports = {}
    for name in catalog.names():
        target = catalog.models.get(name)
        if target is not None and target.upstream is not None:
            found[name] = _upstream_model(name, target, target.upstream)
        elif target is not None:
            readiness = target.readiness()
            found[name] = ModelReport(LOCAL, _state(readiness.ready), readiness.reason)
        else:
            found[name] = ModelReport(LOCAL, _UNAVAILABLE, catalog.absence(name))
    return found


def merge(these: ModelReports, others: ModelReports) -> ModelReports:
    """Upstream models count in every process, and are ready if they are for one. The first report of a local
    model stays."""
    for name, other in others.items():
        known = these.get(name)
        if known is None:
            known = these[name] = ModelReport(other.runs, other.state, other.reason)
        elif known.runs == LOCAL:
            continue
        _merge_model(known, other)
    return these


def without_process(reports: ModelReports) -> ModelReports:
    """What stays of ``reports`` when their process has exited: the counts of upstream models."""
    return {
        name: ModelReport(
            each.runs,
            _UNAVAILABLE,
            "",
            {
                version: VersionReport(_UNAVAILABLE, statistics=report.statistics)
                for version, report in each.versions.items()
            },
        )
        for name, each in reports.items()
        if each.runs != LOCAL
    }


def render(reports: ModelReports) -> dict[str, Any]:
    """The values for JSON."""
    return {
        name: {
            "runs": each.runs,
            "state": each.state,
            "reason": each.reason,
            "versions": [_rendered(version, report) for version, report in each.versions.items()],
        }
        for name, each in sorted(reports.items())
    }


async def report(catalog: KnownModels) -> Mapping[str, Any]:
    """The report of one process."""
    return render(await collect(catalog))


async def _model(catalog: KnownModels, name: str) -> ModelReport:
    target = catalog.models.get(name)
    if target is not None and target.upstream is not None:
        return _upstream_model(name, target, target.upstream)
    status = await catalog.status(name)  # a local model: no network I/O
    known = {each.version: each for each in ([] if target is None else loaded_versions(name, target))}
    versions = {
        each.version: _version(known.get(each.version), each.state.value, each.reason)
        for each in (() if status is None else status.versions)
    }
    ready = any(each.state == _READY for each in versions.values())
    return ModelReport(LOCAL, _state(ready), catalog.absence(name) if target is None else "", versions)


def _upstream_model(name: str, target: Target, upstream: Upstream) -> ModelReport:
    failing = "" if answers(upstream) else _last_failure(upstream)
    versions = {each.version: _version(each, _state(each.ready)) for each in loaded_versions(name, target)}
    return ModelReport(f"upstream {upstream.name}", _state(not failing), failing, versions)


def _version(known: LoadedVersion | None, state: str, reason: str = "") -> VersionReport:
    if known is None:
        return VersionReport(state, reason)
    return VersionReport(state, reason, known.waiting, known.statistics, known.sequences)


def _last_failure(upstream: Upstream) -> str:
    reasons = [member.reason for member in upstream.pool.members if member.reason]
    return reasons[-1] if reasons else "its servers report not ready"


def _state(ready: bool) -> str:
    return _READY if ready else _UNAVAILABLE


def _merge_model(known: ModelReport, other: ModelReport) -> None:
    known.state = _better(known.state, other.state)
    if known.runs != LOCAL:
        known.reason = "" if known.state == _READY else known.reason or other.reason
    for version, report in other.versions.items():
        same = known.versions.get(version)
        if same is None:
            same = known.versions[version] = VersionReport(report.state, report.reason, report.waiting)
        same.state = _better(same.state, report.state)
        if report.statistics is not None:
            if same.statistics is None:
                same.statistics = VersionStatistics()
            same.statistics.merge(report.statistics)


def _better(one: str, other: str) -> str:
    return _READY if _READY in (one, other) else one


def _rendered(version: str, report: VersionReport) -> dict[str, Any]:
    stated = {"version": version, "state": report.state, "reason": report.reason}
    statistics = report.statistics
    if statistics is None:
        return stated
    latencies = statistics.latencies
    count = sum(latencies.counts)
    runs = statistics.execution_count
    queue_ns, queued = attrgetter("queue.ns"), total(statistics, attrgetter("queue.count"))
    return {
        **stated,
        "requests": count,
        "failures": {code.name: number for code, number in statistics.failures.items()},
        "refused": statistics.refused,
        "waiting": report.waiting,
        "sequences": report.sequences,
        "latency_mean_ms": round(latencies.ns / count / 1e6, 3) if count else None,
        "latency_ms": {str(q): quantile_ms(latencies, q) for q in _QUANTILES} if count else {},
        "inferences": statistics.inference_count,
        "executions": runs,
        "batch_size_mean": round(statistics.inference_count / runs, 2) if runs else None,
        "batch_size_max": max(statistics.executions, default=None),
        "executions_by_batch_size": {
            str(size): each.compute_infer.count for size, each in sorted(statistics.executions.items())
        },
        "queue_mean_ms": round(total(statistics, queue_ns) / queued / 1e6, 3) if queued else None,
        "cache_hits": statistics.cache_hit.count,
        "cache_misses": statistics.cache_miss.count,
        "last_inference_ms": statistics.last_inference_ms,
    }
