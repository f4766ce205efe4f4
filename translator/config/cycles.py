"""Models that would ask each other without end: an upstream of the file is a listener of the same file, and
the model asked there leads back.

What is told is certain, of some requests at least; a way by a host name or another server is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlingua.protocols.transport.address import Address, parse_address, parse_url
from interlingua.translator.config.document import Path
from interlingua.translator.config.options import Config, ListenerOptions, UpstreamOptions
from interlingua.translator.serving.routing.conditions import Conditions, RouteKey

_ANY = ("", "0.0.0.0", "::")
_HERE = ("127.0.0.1", "::1", "localhost")


def endless(config: Config) -> Iterator[tuple[Path, str]]:
    """Where in the file a model is that would ask itself in the end, and by which way."""
    for name in config.models:
        way = _way_back(config, name, (name,))
        # told once, of the model that comes first in the file
        if way is not None and name == min(way, key=list(config.models).index):
            steps = " -> ".join(f"'{model}'" for model in (*way, name))
            yield ("models", name), f"asks itself without end, by way of this server's own listeners: {steps}"


def _way_back(config: Config, goal: str, way: tuple[str, ...]) -> tuple[str, ...] | None:
    for model in _asked_by(config, way[-1]):
        if model == goal:
            return way
        if model not in way:
            found = _way_back(config, goal, (*way, model))
            if found is not None:
                return found
    return None


def _asked_by(config: Config, name: str) -> Iterator[str]:
    """The models of this server that a request to the model ``name`` ends up at."""
    model = config.models.get(name)
    if model is None or model.upstream is None:
        return
    upstream = config.upstreams[model.upstream]
    for listener in config.listeners:
        if _is(listener, upstream) and upstream.dialect in listener.dialects:
            asked = name if model.remote_model is None else model.remote_model
            yield from _led_to(config, listener, upstream.dialect, asked)


def _led_to(config: Config, listener: ListenerOptions, dialect: str, model: str) -> Iterator[str]:
    model = model or listener.default_model or config.default_model or ""
    for route in config.routes:
        match = route.match
        if match.version is not None or match.parameters:
            continue
        when = Conditions(match.model, match.dialect or "", match.listener or "", headers=match.headers)
        if not (when.names(model) and when.admits(RouteKey(model, dialect, listener.listen))):
            continue
        yield from (part.to for part in route.split or () if part.weight)
        yield from filter(None, (route.to, route.fallback))
        return
    yield model


def _is(listener: ListenerOptions, upstream: UpstreamOptions) -> bool:
    bound = parse_address(listener.listen)
    urls = (parse_url(url, upstream.transport) for url in upstream.urls)
    return any(not url.base and _same(bound, url.address) for url in urls)


def _same(bound: Address, asked: Address) -> bool:
    if bound.path or asked.path:
        return bound.path == asked.path
    hosts = bound.host == asked.host or (asked.host in _HERE and bound.host in (*_ANY, *_HERE))
    return bound.port == asked.port != 0 and hosts
