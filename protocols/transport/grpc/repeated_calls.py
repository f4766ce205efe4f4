"""Unary calls with the same metadata: those of one connection, and what a listener knows of them from others.

A client may open a connection for every call, and states another timeout in each. The fast path that one call
has found serves all with its method and metadata.
"""

from __future__ import annotations

from typing import Any

from interlingua.protocols.fast_path import FastCall, FastCaller, FastPath, FindInline, FindPath, InlinePath
from interlingua.protocols.transport.grpc.headers import CallHeaders
from interlingua.protocols.wire import GrpcRequest

_MOST_KEPT = 64
_KEPT_FIELDS = 32
"""The most metadata of which a path is kept."""

_Key = tuple[str, int, tuple[tuple[str, str], ...]]


class KnownCalls:
    """The fast paths that one listener has found last, by method and metadata."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[_Key, FastPath] = {}

    def path(self, headers: CallHeaders, size: int = 0) -> FastPath | None:
        """That of calls with ``headers``, or of those whose messages arrive, of ``size`` bytes."""
        return self._paths.get(_key(headers, size)) if self._paths else None

    def keep(self, headers: CallHeaders, path: FastPath, size: int = 0) -> None:
        """Offer ``path`` to other connections."""
        if len(headers.metadata) > _KEPT_FIELDS:
            return
        if len(self._paths) >= _MOST_KEPT:  # clients choose the metadata
            self._paths.clear()
        self._paths[_key(headers, size)] = path


class RepeatedCalls:
    """Calls with these ``headers``, of which ``handler`` has served ``count``; ``path`` is their fast path,
    if it is known, and ``inline`` their inline path. Those of a client that ``is_named`` by a certificate
    have no path in common with others."""

    __slots__ = (
        "_arriving",
        "_find",
        "_find_inline",
        "_is_named",
        "_known",
        "_missed",
        "count",
        "headers",
        "inline",
        "path",
    )

    def __init__(self, handler: object, known: KnownCalls, is_named: bool) -> None:
        self._find: FindPath | None = getattr(handler, "fast_path", None)
        self._find_inline: FindInline | None = getattr(handler, "inline_path", None)
        self._known = known
        self._is_named = is_named
        self.count = self._missed = 0
        self.headers: CallHeaders | None = None
        self.path: FastPath | None = None
        self._arriving: FastPath | None = None
        self.inline: InlinePath | None = None

    def begin(self, headers: CallHeaders) -> None:
        """Calls have other headers now."""
        self.headers, self.inline, self.count = headers, None, 0
        self._arriving, self._missed = None, 0
        self.path = None if self._is_named else self._known.path(headers)

    def find(self, headers: CallHeaders, request: GrpcRequest) -> None:
        """The handler is to serve ``request``, a call with ``headers``: find the path of those that repeat
        it."""
        self.path = None if self._find is None else self._find(request)
        if self.path is not None and not self._is_named:
            self._known.keep(headers, self.path)
        if self._find_inline is not None and self.path is None:
            self.inline = self._find_inline(request)

    def begin_arriving(
        self, headers: CallHeaders, request: GrpcRequest, caller: FastCaller
    ) -> FastCall | None:
        """Send ``request`` of ``caller`` on, a call with ``headers`` whose message is arriving. None if no
        path takes it."""
        if headers is not self.headers:
            self.begin(headers)
        message: Any = request.message
        size, path, sent = len(message), self._arriving, None
        if (path is None or path.size != size) and not self._is_named:
            path = self._known.path(headers, size)
        if path is not None and path.size == size:
            sent = path.begin(message, request.context, caller)
        if sent is None and self._find is not None:
            # seldom, if there is none
            self._missed += 1
            path = None if self._missed & (self._missed - 1) else self._find(request)
            if path is not None and path.lead and path.size == size:
                sent = path.begin(message, request.context, caller)
        if sent is not None and path is not None:
            self._missed = 0
            if path is not self._arriving:
                self._arriving = path
                if not self._is_named:
                    self._known.keep(headers, path, size)
        return sent


def _key(headers: CallHeaders, size: int) -> _Key:
    return headers.method, size, tuple(headers.metadata.items())
