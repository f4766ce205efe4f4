"""Finds the endpoint for a method and a path among the tables of the dialects on a listener, and writes the
segments of the paths of calls.

A pattern is ``*`` or a path whose segments are literals, ``{name}`` or ``{name}suffix``, such as
``/v1/models/{model}:predict``. Segments match in this order: literal, longest suffix, any name. A search goes
back to the next choice where the rest of the path does not match, so a model may have the name of a literal
segment of another endpoint. Percent-escapes stay as they are. Endpoints with ``any_case`` are
searched first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote

from interlingua.protocols.dialect import HttpEndpoint
from interlingua.schemas import ErrorCode, InferenceError, unrepresentable
from interlingua.schemas.version_number import version_number

_KNOWN_PATHS = 4096
_LONGEST_KNOWN = 256
"""Clients choose the paths: these limits bound the number of cached paths and their memory."""

_SEGMENT = re.compile(r"(?:\{(?P<name>\w+)\})?(?P<literal>[^{}*]*)")

_DOTS = frozenset({".", ".."})
"""Segments that are removed from a path (RFC 3986, section 5.2.4), percent-escaped or not."""

Methods = Mapping[str, HttpEndpoint]


def segment_of_model(model: str) -> str:
    """``model`` as a segment of the path of a call. Raises NOT_FOUND for one that a server reads as another
    path, UNREPRESENTABLE for what is not Unicode text."""
    if model in _DOTS:
        raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{model}' is not found")
    return _quoted("model name", model)


def segment_of_version(version: str) -> str:
    """The same for ``version``, which may not have a slash either. Raises INVALID_TENSOR and
    UNREPRESENTABLE."""
    if version in _DOTS or "/" in version:
        version_number(version)
    return _quoted("version", version)


def _quoted(what: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise unrepresentable(f"the {what} {text!a} is not Unicode text") from None


class CollisionError(ValueError):
    """Two endpoints of a listener answer the same requests."""

    def __init__(self, first: HttpEndpoint, second: HttpEndpoint) -> None:
        super().__init__(f"two endpoints for {second.method} {second.path}")
        self.endpoints = first, second


@dataclass(slots=True)
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    named: dict[str, _Node] = field(default_factory=dict)
    """By literal suffix, the longest first; without one, the suffix is empty."""
    names: tuple[str, ...] = ()
    methods: dict[str, HttpEndpoint] = field(default_factory=dict)


class PathTable:
    """The endpoints of a listener, by path. Raises ``CollisionError`` for two endpoints with the same method
    and pattern, ``ValueError`` for a pattern that it cannot read.

    A page and another endpoint may share a method and a pattern: the table has the page, ``without_html`` the
    endpoint that answers in its place where a client does not want HTML.
    """

    def __init__(self, endpoints: Iterable[HttpEndpoint]) -> None:
        self._root, self._any_case = _Node(), _Node()
        self._anything: dict[str, HttpEndpoint] = {}
        self.without_html: dict[HttpEndpoint, HttpEndpoint] = {}
        for endpoint in endpoints:
            self._add(endpoint)
        # clients repeat a few paths
        self._find = lru_cache(maxsize=_KNOWN_PATHS)(self._search)

    def find(self, path: str) -> tuple[Methods, Mapping[str, str]]:
        """The endpoints of ``path`` by method (``*``: any method), and its named segments; no methods for an
        unknown path."""
        return self._find(path) if len(path) <= _LONGEST_KNOWN else self._search(path)

    def _add(self, endpoint: HttpEndpoint) -> None:
        methods = self._anything if endpoint.path == "*" else self._node(self._root, endpoint.path).methods
        if endpoint.any_case:
            self._node(self._any_case, endpoint.path).methods[endpoint.method] = endpoint
        other = methods.setdefault(endpoint.method, endpoint)
        if other is endpoint:
            return
        page, plain = (endpoint, other) if endpoint.page else (other, endpoint)
        if plain.page or not page.page or page in self.without_html:
            raise CollisionError(self.without_html.get(other, other), endpoint)
        methods[endpoint.method] = page
        self.without_html[page] = plain

    def _node(self, node: _Node, pattern: str) -> _Node:
        if not pattern.startswith("/"):
            raise ValueError(f"path pattern '{pattern}' does not start with a slash")
        names: list[str] = []
        for segment in pattern.split("/")[1:]:
            read = _SEGMENT.fullmatch(segment)
            if read is None or read["name"] in names:
                raise ValueError(f"path pattern '{pattern}' has a segment that is not readable: '{segment}'")
            if read["name"] is None:
                node = node.literals.setdefault(segment, _Node())
                continue
            names.append(read["name"])
            above, node = node, node.named.setdefault(read["literal"], _Node())
            above.named = dict(sorted(above.named.items(), key=lambda entry: -len(entry[0])))
        node.names = tuple(names)
        return node

    def _search(self, path: str) -> tuple[Methods, Mapping[str, str]]:
        segments = path.split("/")
        for root, fold in ((self._any_case, str.lower), (self._root, str)):
            found = None if segments[0] else next(_descend(root, segments, 1, (), fold), None)
            if found is not None:
                node, values = found
                return node.methods, dict(zip(node.names, values, strict=True))
        return self._anything, {}


def _descend(
    node: _Node, segments: list[str], depth: int, values: tuple[str, ...], fold: Callable[[str], str]
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """Every node that matches the path, with the named segments, by preference."""
    if depth == len(segments):
        if node.methods:
            yield node, values
        return
    segment = segments[depth]
    literal = node.literals.get(fold(segment))
    if literal is not None:
        yield from _descend(literal, segments, depth + 1, values, fold)
    for suffix, named in node.named.items():
        end = len(segment) - len(suffix)
        if end > 0 and fold(segment[end:]) == suffix:
            yield from _descend(named, segments, depth + 1, (*values, segment[:end]), fold)
