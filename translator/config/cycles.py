"""Forwarding loops: an upstream of the file is a listener of the same file, and its model leads back.

Every reported loop is real for some requests at least. Loops through a host name or another server are not
found."""

from __future__ import annotations

from collections.abc import Iterator

from interlingua.protocols.transport.address import Address, parse_address, parse_url
from interlingua.translator.config.document import Path
from interlingua.translator.config.members import members_of
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.config.upstreams import UpstreamOptions
from interlingua.translator.serving.routing.conditions import Conditions, RouteKey

_ANY = ("", "0.0.0.0", "::")
_LOCAL = ("127.0.0.1", "::1", "localhost")


def endless(config: Config) -> Iterator[tuple[Path, str]]:
    """The first model in the file of each loop, and the loop."""
    for name in config.models:
        loop = _loop(config, name, (name,))
        # reported once, for the model that comes first in the file
        if loop is not None and name == min(loop, key=list(config.models).index):
            steps = " -> ".join(f"'{model}'" for model in (*loop, name))
            yield ("models", name), f"loops through this server's own listeners: {steps}"


def _loop(config: Config, start: str, path: tuple[str, ...]) -> tuple[str, ...] | None:
    for model in _forwards_to(config, path[-1]):
        if model == start:
            return path
        if model not in path:
            found = _loop(config, start, (*path, model))
            if found is not None:
                return found
    return None


def _forwards_to(config: Config, name: str) -> Iterator[str]:
    """The models of this server that receive requests from the model ``name``."""
    model = config.models.get(name)
    if model is None or model.upstream is None:
        return
    upstream = config.upstreams[model.upstream]
    for listener in config.listeners:
        if _is(listener, upstream) and upstream.dialect in listener.dialects:
            remote = name if model.remote_model is None else model.remote_model
            yield from _routed_to(config, listener, upstream.dialect, remote)


def _routed_to(config: Config, listener: ListenerOptions, dialect: str, model: str) -> Iterator[str]:
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
    urls = (parse_url(member.url, upstream.transport) for member in members_of(upstream))
    return any(not url.base and _reaches(url.address, bound) for url in urls)


def _reaches(target: Address, bound: Address) -> bool:
    if bound.path or target.path:
        return bound.path == target.path
    hosts = bound.host == target.host or (target.host in _LOCAL and bound.host in (*_ANY, *_LOCAL))
    return bound.port == target.port != 0 and hosts
