"""What a server tells of its models and of shared memory, as messages of the contract.

Configuration, statistics, the index of repositories, and regions. Over HTTP the same messages are printed
as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlingua.schemas import Duration, ModelStatus, SharedMemoryRegion, VersionStatistics
from interlingua.schemas.oip import MESSAGES

STATISTICS = MESSAGES["inference.ModelStatisticsResponse"]
INDEX = MESSAGES["inference.RepositoryIndexResponse"]
REGIONS = MESSAGES["inference.SystemSharedMemoryStatusResponse"]

_PINNED = ("input_pinned_memory", "output_pinned_memory")
_PARTS = ("queue", "compute_input", "compute_infer", "compute_output")
_COMPUTED = _PARTS[1:]


def config_message(config: bytes) -> Any:
    """A serialized ``inference.ModelConfig`` with what Triton fills in besides: pinned memory is on where
    nothing is stated."""
    told: Any = MESSAGES["inference.ModelConfig"].FromString(config)
    for memory in _PINNED:
        if not told.optimization.HasField(memory):
            getattr(told.optimization, memory).enable = True
    return told


def statistics_message(models: Iterable[ModelStatus]) -> Any:
    """The statistics of every version of ``models``."""
    told: Any = STATISTICS()
    for model in models:
        for version in model.versions:
            counted = version.statistics
            told.model_stats.add(
                name=model.name,
                version=version.version,
                last_inference=counted.last_inference_ms,
                inference_count=counted.inference_count,
                execution_count=counted.execution_count,
                inference_stats=_totals(counted),
                batch_stats=_batches(counted),
            )
    return told


def index_message(models: Iterable[ModelStatus]) -> Any:
    """An entry for every version of ``models``; the name alone of a model that has none."""
    told: Any = INDEX()
    for model in models:
        if not model.versions:
            told.models.add(name=model.name)
        for version in model.versions:
            told.models.add(
                name=model.name,
                version=version.version,
                state=version.state.value,
                reason=version.reason.encode(errors="backslashreplace").decode(),
            )
    return told


def regions_message(regions: Iterable[SharedMemoryRegion]) -> Any:
    """The regions by name."""
    told: Any = REGIONS()
    for region in regions:
        entry = told.regions[region.name]
        entry.name, entry.key = region.name, region.key
        entry.offset, entry.byte_size = region.offset, region.byte_size
    return told


def _totals(counted: VersionStatistics) -> dict[str, dict[str, int]]:
    """The sums over all sizes of batch."""
    sizes = counted.by_batch_size.values()
    totals = {name: _sum(getattr(size, name) for size in sizes) for name in ("success", *_PARTS)}
    totals["fail"] = _sum(size.failed for size in sizes)
    totals["cache_hit"] = _sum((counted.cache_hit,))
    totals["cache_miss"] = _sum((counted.cache_miss,))
    return totals


def _batches(counted: VersionStatistics) -> list[dict[str, Any]]:
    """What the sizes of batch took that the model has run with, the smallest first."""
    return [
        {"batch_size": size, **{name: _sum((getattr(executions, name),)) for name in _COMPUTED}}
        for size, executions in sorted(counted.executions.items())
    ]


def _sum(durations: Iterable[Duration]) -> dict[str, int]:
    count = ns = 0
    for duration in durations:
        count += duration.count
        ns += duration.ns
    return {"count": count, "ns": ns}
