"""What all processes of a server have counted for the reports of dialects, as if one had.

Each process counts for itself. To answer a client, a front end queries the others (``Service.total``). Local
models count in the runtime process alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from interlingua.runtime.repository.known_models import KnownModels
from interlingua.schemas import Duration, VersionStatistics
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.trends import TrendCounts

ModelCounts = dict[str, dict[str, VersionStatistics]]
"""The statistics of upstream models, by name and version."""


class Count(NamedTuple):
    """A kind of counts: what one process has, and how ``merge`` adds the second to the first, which began as
    ``empty``. Values are plain enough to be pickled."""

    collect: Callable[[Service], Any]
    empty: Callable[[], Any]
    merge: Callable[[Any, Any], Any]


def upstream_counts(catalog: KnownModels) -> ModelCounts:
    """The statistics of the upstream models in ``catalog``."""
    return {
        name: dict(target.statistics)
        for name, target in catalog.models.items()
        if target.upstream is not None
    }


def _merge_models(these: ModelCounts, others: ModelCounts) -> ModelCounts:
    for name, versions in others.items():
        known = these.setdefault(name, {})
        for version, statistics in versions.items():
            known.setdefault(version, VersionStatistics()).merge(statistics)
    return these


def _merge_operations(these: dict[str, Duration], others: Mapping[str, Duration]) -> dict[str, Duration]:
    for name, duration in others.items():
        these.setdefault(name, Duration()).merge(duration)
    return these


def _merge_numbers(these: dict[str, int], others: Mapping[str, int]) -> dict[str, int]:
    for name, number in others.items():
        these[name] = these.get(name, 0) + number
    return these


def _merge_trends(these: TrendCounts, others: TrendCounts) -> TrendCounts:
    these.merge(others)
    return these


COUNTS: Mapping[str, Count] = {
    "models": Count(lambda service: upstream_counts(service.catalog), dict, _merge_models),
    "traces": Count(lambda service: service.traces.left(), dict, _merge_numbers),
    "operations": Count(lambda service: service.counted, dict, _merge_operations),
    "trends": Count(lambda service: service.trends.counts(), TrendCounts.none, _merge_trends),
}
"""By the name that ``Service.total`` takes."""
