"""Finds the endpoint for a method and a path among the tables of the dialects on a listener.

Patterns are tried segment by segment, a literal before a ``{name}``; so a model may be called like a
literal segment of another endpoint and is still found. Percent-escapes are left to the dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from interlingua.protocols.dialect import HttpEndpoint

_KNOWN_PATHS = 4096
_LONGEST_KNOWN = 256
"""Paths are the clients' choice, so how many are remembered has an end, and how much of memory they take."""

Methods = Mapping[str, HttpEndpoint]


@dataclass(slots=True)
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    named: _Node | None = None
    names: tuple[str, ...] = ()
    methods: dict[str, HttpEndpoint] = field(default_factory=dict)


class PathTable:
    """The endpoints of a listener, by path. Two endpoints for the same method and pattern are a
    programming error and raise ``ValueError``."""

    def __init__(self, endpoints: Iterable[HttpEndpoint]) -> None:
        self._root = _Node()
        self._anything: dict[str, HttpEndpoint] = {}
        for endpoint in endpoints:
            methods = self._anything if endpoint.path == "*" else self._node(endpoint.path).methods
            if endpoint.method in methods:
                raise ValueError(f"two endpoints for {endpoint.method} {endpoint.path}")
            methods[endpoint.method] = endpoint
        # clients come back with the same few paths
        self._find = lru_cache(maxsize=_KNOWN_PATHS)(self._search)

    def find(self, path: str) -> tuple[Methods, Mapping[str, str]]:
        """The endpoints of ``path`` by method (``*``: any method), and its named segments; no methods
        for a path that nobody has."""
        return self._find(path) if len(path) <= _LONGEST_KNOWN else self._search(path)

    def _node(self, pattern: str) -> _Node:
        node, names = self._root, []
        for segment in pattern.split("/")[1:]:
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.named = node.named or _Node()
                node = node.named
            else:
                node = node.literals.setdefault(segment, _Node())
        node.names = tuple(names)
        return node

    def _search(self, path: str) -> tuple[Methods, Mapping[str, str]]:
        segments = path.split("/")
        found = None if segments[0] else _descend(self._root, segments, 1, ())
        if found is None:
            return self._anything, {}
        node, values = found
        return node.methods, dict(zip(node.names, values, strict=True))


def _descend(
    node: _Node, segments: list[str], depth: int, values: tuple[str, ...]
) -> tuple[_Node, tuple[str, ...]] | None:
    if depth == len(segments):
        return (node, values) if node.methods else None
    segment = segments[depth]
    literal = node.literals.get(segment)
    if literal is not None:
        found = _descend(literal, segments, depth + 1, values)
        if found is not None:
            return found
    if node.named is not None and segment:
        return _descend(node.named, segments, depth + 1, (*values, segment))
    return None
