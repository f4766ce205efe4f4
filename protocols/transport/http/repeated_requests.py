"""Requests with the same headers: those of one connection, and what a listener knows of them from others.

A client sends the same headers on each of its connections, and may open one for every request. What is known
of them saves a new connection the parser, and the fast path that another has found serves it from its first
request on.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.protocols.fast_path import FastPath, FindPath
from interlingua.protocols.transport.http.inline import InlineRequests
from interlingua.protocols.transport.http1.arriving import STREAMED_BYTES
from interlingua.protocols.transport.http1.headers import RequestHeaders
from interlingua.protocols.wire import HttpRequest

_MOST_KEPT = 64
_EVERY = 256
"""So often at least, a path is searched: the one that is known may be for a model that has been replaced."""

_KEPT_BYTES = 1 << 12
"""The longest header section that is kept."""


@dataclass(slots=True, eq=False)
class _Known:
    """``connections`` more than one have begun with such a request on its usual path."""

    headers: RequestHeaders
    path: FastPath | None = None
    connections: int = 0


class KnownRequests:
    """The header sections of one listener's requests, and the fast paths of those that have one."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def headers(self, raw: bytes) -> RequestHeaders | None:
        """What was parsed of ``raw``, if that is known."""
        known = self._known.get(raw)
        return None if known is None else known.headers

    def path(self, headers: RequestHeaders) -> FastPath | None:
        """The fast path that was found last for requests with ``headers``."""
        known = self._known.get(headers.raw)
        return None if known is None else known.path

    def count(self, headers: RequestHeaders) -> int:
        """Count a connection on which the first request with ``headers`` takes the usual path. Returns how
        many have been counted before."""
        known = self._known.get(headers.raw)
        if known is not None:
            known.connections += 1
            return known.connections
        if len(headers.raw) <= _KEPT_BYTES:
            if len(self._known) >= _MOST_KEPT:  # clients choose the headers
                self._known.clear()
            self._known[headers.raw] = _Known(headers)
        return 0

    def keep(self, headers: RequestHeaders, path: FastPath) -> None:
        """Offer ``path`` to other connections."""
        known = self._known.get(headers.raw)
        if known is not None:
            known.path = path


class RepeatedRequests:
    """The requests of a connection with these ``headers``; ``path`` is their fast path, if it is known, and
    ``inline`` finds their inline path. Those of a client that ``is_named`` by a certificate have no path in
    common with others."""

    __slots__ = ("_count", "_find", "_is_named", "_known", "headers", "inline", "path")

    def __init__(self, handler: object, known: KnownRequests, is_named: bool) -> None:
        self._find: FindPath | None = getattr(handler, "fast_path", None)
        self._known = known
        self._is_named = is_named
        self._count = -1  # after the first, of those on the usual path
        self.headers: RequestHeaders | None = None
        self.path: FastPath | None = None
        self.inline = InlineRequests(handler)

    def begin(self, headers: RequestHeaders) -> None:
        """Requests have other headers now."""
        self.headers, self._count = headers, -1
        self.path = None if self._is_named else self._known.path(headers)

    def serve(self, request: HttpRequest, headers: RequestHeaders) -> None:
        """The handler is to serve ``request``: find the paths of those that repeat it, seldom if there are
        none."""
        if self._find is None or not 0 <= headers.length <= STREAMED_BYTES:
            return
        self._count += 1
        count = self._count or self._known.count(headers)
        if not count or (count & (count - 1) and count % _EVERY):
            return
        # an answer to HEAD has no body (RFC 9110, 9.3.2)
        if headers.keep_alive and headers.minor and headers.method != "HEAD":
            self.path = self._find(request)
            if self.path is not None and not self._is_named:
                self._known.keep(headers, self.path)
            self.inline.find(request, headers)
