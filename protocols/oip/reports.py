"""Reports as messages of the contract: configuration, statistics, the repository index, and shared memory.
Over HTTP the same messages are printed as JSON."""

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
    """A serialized ``inference.ModelConfig`` with Triton's default: pinned memory is on."""
    message: Any = MESSAGES["inference.ModelConfig"].FromString(config)
    for memory in _PINNED:
        if not message.optimization.HasField(memory):
            getattr(message.optimization, memory).enable = True
    return message


def statistics_message(models: Iterable[ModelStatus]) -> Any:
    """The statistics of every version of ``models``."""
    message: Any = STATISTICS()
    for model in models:
        for version in model.versions:
            statistics = version.statistics
            message.model_stats.add(
                name=model.name,
                version=version.version,
                last_inference=statistics.last_inference_ms,
                inference_count=statistics.inference_count,
                execution_count=statistics.execution_count,
                inference_stats=_totals(statistics),
                batch_stats=_batches(statistics),
            )
    return message


def index_message(models: Iterable[ModelStatus]) -> Any:
    """An entry for every version of ``models``; only the name for a model without versions."""
    message: Any = INDEX()
    for model in models:
        if not model.versions:
            message.models.add(name=model.name)
        for version in model.versions:
            message.models.add(
                name=model.name,
                version=version.version,
                state=version.state.value,
                reason=version.reason.encode(errors="backslashreplace").decode(),
            )
    return message


def regions_message(regions: Iterable[SharedMemoryRegion]) -> Any:
    """The regions by name."""
    message: Any = REGIONS()
    for region in regions:
        entry = message.regions[region.name]
        entry.name, entry.key = region.name, region.key
        entry.offset, entry.byte_size = region.offset, region.byte_size
    return message


def _totals(statistics: VersionStatistics) -> dict[str, dict[str, int]]:
    """The sums over all batch sizes."""
    sizes = statistics.by_batch_size.values()
    totals = {name: _sum(getattr(size, name) for size in sizes) for name in ("success", *_PARTS)}
    totals["fail"] = _sum(size.failed for size in sizes)
    totals["cache_hit"] = _sum((statistics.cache_hit,))
    totals["cache_miss"] = _sum((statistics.cache_miss,))
    return totals


def _batches(statistics: VersionStatistics) -> list[dict[str, Any]]:
    """Executions by batch size, the smallest first."""
    return [
        {"batch_size": size, **{name: _sum((getattr(executions, name),)) for name in _COMPUTED}}
        for size, executions in sorted(statistics.executions.items())
    ]


def _sum(durations: Iterable[Duration]) -> dict[str, int]:
    count = ns = 0
    for duration in durations:
        count += duration.count
        ns += duration.ns
    return {"count": count, "ns": ns}
