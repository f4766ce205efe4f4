"""The unary calls of a gRPC connection that repeat the headers of the last ones, and their fast path."""

from __future__ import annotations

from interlingua.protocols.fast_path import FastPath, FindInline, FindPath, InlinePath
from interlingua.protocols.transport.grpc.headers import CallHeaders
from interlingua.protocols.wire import GrpcRequest


class RepeatedCalls:
    """Calls with these ``headers``, of which ``handler`` has served ``count`` after the first; ``path`` is
    their fast path, if it is known, and ``inline`` their inline path."""

    __slots__ = ("_find", "_find_inline", "count", "headers", "inline", "path")

    def __init__(self, handler: object) -> None:
        self._find: FindPath | None = getattr(handler, "fast_path", None)
        self._find_inline: FindInline | None = getattr(handler, "inline_path", None)
        self.count = 0
        self.headers: CallHeaders | None = None
        self.path: FastPath | None = None
        self.inline: InlinePath | None = None

    def begin(self, headers: CallHeaders) -> None:
        """Calls have other headers now."""
        self.headers, self.path, self.inline, self.count = headers, None, None, 0

    def find(self, request: GrpcRequest) -> None:
        """The handler is to serve ``request``: find the path of those that repeat it."""
        if self._find is not None:
            self.path = self._find(request)
        if self._find_inline is not None and self.path is None:
            self.inline = self._find_inline(request)
