"""The request counts of routes as a report and as metrics. A route has its number in the configuration, from
1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from interlingua.translator.admin.merging import Rules, first
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.serving.routing.route import Route


def reports(routes: Sequence[Route]) -> list[dict[str, Any]]:
    """Every route: its conditions, its models, its counts."""
    return [
        {
            "route": number,
            "match": route.when.stated,
            "requests": route.counts.requests,
            "to": [{"model": model, "requests": count} for model, count in route.counts.parts.items()],
            "fallback": route.fallback,
            "fallbacks": route.counts.fallbacks,
        }
        for number, route in enumerate(routes, 1)
    ]


MERGING: Rules = {"route": first, "match": first, "model": first}
"""How the reports of two processes become one."""


def families(routes: Sequence[Route]) -> Iterator[Family]:
    """The counts as metrics; none without routes."""
    labels = [{"route": str(number), "model": route.when.model} for number, route in enumerate(routes, 1)]
    if not routes:
        return
    yield Family(
        "interlingua_route_requests_total",
        "counter",
        "Inference requests that took a route, by the model that they were meant for.",
        [
            Sample(count, {**label, "to": model})
            for label, route in zip(labels, routes, strict=True)
            for model, count in route.counts.parts.items()
        ],
    )
    yield Family(
        "interlingua_route_fallbacks_total",
        "counter",
        "Those among them that went to the fallback instead.",
        [
            Sample(route.counts.fallbacks, {**label, "to": route.fallback})
            for label, route in zip(labels, routes, strict=True)
            if route.fallback
        ],
    )
