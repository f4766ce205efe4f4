"""What one process has counted of its traffic: inferences by the way that they took, and what waits now.

It is read from the histograms of ``request_metrics`` and the queues of models: requests pay nothing for it.
Several processes add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.serving.request_metrics import RequestMetrics

BUCKETS = len(LATENCY_BOUNDS_NS) + 1


class Way(NamedTuple):
    """How inferences went: the ``dialect`` of the caller, the number of the ``route``, empty without one, the
    ``model`` and its ``upstream``, empty for a local model. Without a model none was found."""

    dialect: str
    route: str
    model: str
    upstream: str


Counts = tuple[int, ...]
"""The failed inferences, then all of them by the ranges of ``LATENCY_BOUNDS_NS``."""


@dataclass(slots=True)
class Traffic:
    """``ways`` has the inferences since the start, ``waiting`` the requests in the queues of models now,
    ``limited`` those that wait for an upstream."""

    ways: dict[Way, Counts] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    limited: dict[str, int] = field(default_factory=dict)


def collect(
    catalog: KnownModels,
    upstreams: Mapping[str, Upstream],
    by_listener: Iterable[Mapping[str, RequestMetrics]] = (),
) -> Traffic:
    """The traffic of this process."""
    found, models = Traffic(), catalog.models
    for listener in by_listener:
        for metrics in listener.values():
            for (route, name), flow in metrics.flows.items():
                target = models.get(name)
                upstream = "" if target is None or target.upstream is None else target.upstream.name
                way = Way(metrics.dialect, str(route or ""), name, upstream)
                _add(found.ways, way, (flow.failed, *flow.counts))
    for name, target in models.items():
        if waiting := sum([version.waiting for version in target.loaded.values()]):
            found.waiting[name] = waiting
    for name, each in upstreams.items():
        if each.gate is not None and each.gate.waiting:
            found.limited[name] = each.gate.waiting
    return found


def merge(these: Traffic, others: Traffic) -> Traffic:
    """Add ``others`` to ``these``, which belongs to the caller."""
    for way, counts in others.ways.items():
        _add(these.ways, way, counts)
    for own, more in ((these.waiting, others.waiting), (these.limited, others.limited)):
        for name, count in more.items():
            own[name] = own.get(name, 0) + count
    return these


def counted(traffic: Traffic) -> Traffic:
    """What stays of ``traffic`` when its process has exited."""
    return Traffic(dict(traffic.ways))


def _add(ways: dict[Way, Counts], way: Way, counts: Counts) -> None:
    known = ways.get(way)
    ways[way] = counts if known is None else tuple(map(sum, zip(known, counts, strict=True)))
