"""Endpoints of two dialects that answer the same requests of one listener.

A more specific path wins over a pattern, a method over any method, and ``Accept`` decides between a page and
another endpoint. Everything else that two dialects share is an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interlingua.protocols.dialect import (
    Binding,
    BrpcEndpoint,
    Endpoint,
    FramedEndpoint,
    GrpcEndpoint,
    HttpEndpoint,
)
from interlingua.protocols.path_table import CollisionError, PathTable
from interlingua.translator.config.bindings import bindings_of
from interlingua.translator.config.document import Path
from interlingua.translator.config.options import Config


def collisions(config: Config) -> Iterator[tuple[Path, str]]:
    for number, listener in enumerate(config.listeners):
        bindings = list(bindings_of(config, listener))
        if listener.transport == "brpc":
            bindings += [each for binding in bindings for each in binding.multiplexed.values()]
        for first, second, what in _shared(bindings):
            yield ("listeners", number, "dialects"), f"'{first}' and '{second}' both answer {what}"


def _shared(bindings: Sequence[Binding]) -> Iterator[tuple[str, str, str]]:
    """The names of two dialects, and the requests that both answer."""
    owners: dict[Endpoint | str, str] = {}
    for binding in bindings:
        for endpoint in binding.endpoints:
            where = _address(endpoint)
            key = endpoint if isinstance(endpoint, HttpEndpoint) else where
            other = owners.setdefault(key, binding.dialect)
            if other != binding.dialect:
                yield other, binding.dialect, where
    # the path * is for a dialect that has the listener to itself
    http = (each for each in owners if isinstance(each, HttpEndpoint))
    try:
        alone = sum(binding.transport == "http" for binding in bindings) == 1
        PathTable(each for each in http if alone or each.path != "*")
    except CollisionError as error:
        first, second = error.endpoints
        yield owners[first], owners[second], _address(second)


def _address(endpoint: Endpoint) -> str:
    match endpoint:
        case HttpEndpoint():
            return f"{endpoint.method} {endpoint.path}"
        case GrpcEndpoint():
            return endpoint.method
        case BrpcEndpoint():  # clients may omit the package of the service
            return f"{endpoint.service.rpartition('.')[2]}/{endpoint.method}"
        case FramedEndpoint():
            return "messages over tcp"
