"""What a configuration serves, for ``interlingua check``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlingua.runtime.upstream.members_file import ListedMember
from interlingua.translator.config import Config
from interlingua.translator.config.members import members_file, members_of
from interlingua.translator.config.models import ModelOptions
from interlingua.translator.config.routes import RouteOptions
from interlingua.translator.config.upstreams import UpstreamOptions


def document(config: Config) -> dict[str, Any]:
    """As values of JSON."""
    return {
        "listeners": [
            {
                "listen": each.listen,
                "transport": each.transport,
                "dialects": each.dialects,
                "default_model": each.default_model or config.default_model,
            }
            for each in config.listeners
        ],
        "models": dict(sorted(_models(config))),
        "routes": [_route(route) for route in config.routes],
        "tap": None if config.tap is None else config.tap.path,
        "admin": None if config.admin is None else config.admin.listen,
    }


def lines(config: Config) -> Iterator[str]:
    """As text, one part a line."""
    yield f"listeners ({len(config.listeners)}):"
    for listener in config.listeners:
        default = listener.default_model or config.default_model
        ending = f"; default model {default}" if default else ""
        yield f"  {listener.listen} over {listener.transport}: {', '.join(listener.dialects)}{ending}"
    models = dict(_models(config))
    yield f"models ({len(models)}):"
    yield from (f"  {name}: {where}" for name, where in sorted(models.items()))
    if config.routes:
        yield f"routes ({len(config.routes)}):"
    yield from (f"  {_route(route)}" for route in config.routes)
    if config.tap is not None:
        yield f"tap: {', '.join(config.tap.models)} to {config.tap.path}"
    if config.admin is not None:
        yield f"admin: {config.admin.listen}"


def _models(config: Config) -> Iterator[tuple[str, str]]:
    """Every model with its source; of two with one name the later wins, as in the daemon."""
    for repository in config.model_repository:
        for name in repository.models:
            yield name, f"repository {repository.name}"
    for name, model in config.models.items():
        yield name, _backing(config, name, model)


def _backing(config: Config, name: str, model: ModelOptions) -> str:
    if model.upstream is None:
        return f"backend {model.backend}" + (f", {model.path}" if model.path else "")
    upstream = config.upstreams[model.upstream]
    there = f"{upstream.dialect} over {upstream.transport} at {_servers(upstream)}"
    remote = name if model.remote_model is None else model.remote_model
    return (
        f"upstream {model.upstream} ({there}), {f'model {remote}' if remote else 'its default model'} there"
    )


def _servers(upstream: UpstreamOptions) -> str:
    listed = [_server(member) for member in members_of(upstream)]
    path = members_file(upstream)
    urls = ", ".join(listed) or "none"
    return urls if path is None else f"the servers in {path}: {urls}"


def _server(member: ListedMember) -> str:
    said = [f"weight {member.weight:g}"] if member.weight != 1 else []
    said += [f"zone {member.zone}"] if member.zone else []
    return f"{member.url} ({', '.join(said)})" if said else member.url


def _route(route: RouteOptions) -> str:
    conditions = route.match.model_dump(exclude_none=True)
    stated = [f"{key} {value}" for key, value in conditions.items() if value != {}]
    parts = [f"{part.to} (weight {part.weight:g})" for part in route.split or ()]
    text = f"{', '.join(stated)} -> {route.to or ', '.join(parts)}"
    if route.fallback is not None:
        text += f"; fallback {route.fallback}"
    if route.mirror is not None:
        text += f"; mirror {route.mirror.to} ({route.mirror.percent:g} %)"
    return text
