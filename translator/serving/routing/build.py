"""From the options of a route to the route."""

from __future__ import annotations

from interlingua.translator.config.routes import RouteOptions
from interlingua.translator.serving.observation import Observer
from interlingua.translator.serving.routing.conditions import Conditions
from interlingua.translator.serving.routing.names import Names
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Part, Split


def build(options: RouteOptions, mirror: Observer | None = None) -> Route:
    """The route that ``options`` describe, observed by ``mirror``."""
    match = options.match
    parts = [Part(part.to, part.weight) for part in options.split or ()]
    return Route(
        Split(parts) if options.to is None else Split.only(options.to),
        Conditions(
            match.model,
            match.dialect or "",
            match.listener or "",
            match.version,
            match.headers,
            match.parameters,
        ),
        Names(options.rename.inputs, options.rename.outputs, options.versions),
        sticky=options.sticky.header if options.sticky is not None else "",
        fallback=options.fallback or "",
        timeout_secs=options.timeout_secs,
        datatypes=options.datatypes or "",
        mirror=mirror,
    )
