"""What routes have been asked, for operators: as a report and as metrics. Routes are told apart by their
place in the configuration, from 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.serving.routing.route import Route


def reports(routes: Sequence[Route]) -> list[dict[str, Any]]:
    """Every route: what it takes and where that goes, and how much that was."""
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


def families(routes: Sequence[Route]) -> Iterator[Family]:
    """The counts as metrics; none where there is no route."""
    labels = [{"route": str(number), "model": route.when.model} for number, route in enumerate(routes, 1)]
    if not routes:
        return
    yield Family(
        "interlingua_route_requests_total",
        "counter",
        "Requests for inference that took a route, by the model that they were meant for.",
        [
            Sample(count, {**label, "to": model})
            for label, route in zip(labels, routes, strict=True)
            for model, count in route.counts.parts.items()
        ],
    )
    yield Family(
        "interlingua_route_fallbacks_total",
        "counter",
        "Those that the fallback was given in its place.",
        [
            Sample(route.counts.fallbacks, {**label, "to": route.fallback})
            for label, route in zip(labels, routes, strict=True)
            if route.fallback
        ],
    )
