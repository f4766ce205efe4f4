"""The unary calls of a gRPC connection that repeat the headers of the last ones, and their fast path."""

from __future__ import annotations

from interlingua.protocols.fast_path import FastPath, FindPath
from interlingua.protocols.transport.grpc.headers import CallHeaders
from interlingua.protocols.wire import GrpcRequest


class RepeatedCalls:
    """Calls with these ``headers``, of which the handler has served ``count`` after the first; ``path`` is
    their fast path, if it is known."""

    __slots__ = ("_find", "count", "headers", "path")

    def __init__(self, find: FindPath | None) -> None:
        self._find = find
        self.count = 0
        self.headers: CallHeaders | None = None
        self.path: FastPath | None = None

    def begin(self, headers: CallHeaders) -> None:
        """Calls have other headers now."""
        self.headers, self.path, self.count = headers, None, 0

    def find(self, request: GrpcRequest) -> None:
        """The handler is to serve ``request``: find the path of those that repeat it."""
        if self._find is not None:
            self.path = self._find(request)
