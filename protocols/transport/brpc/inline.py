"""The inline path of one bRPC connection: calls of a method that was called before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from interlingua.protocols.fast_path import FindInline, InlinePath
from interlingua.protocols.transport.load import SMALL_BYTES
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest

Serve = Callable[[BrpcRequest], Awaitable[BrpcAnswer]]


class InlineCalls:
    """Finds the ``path`` in ``handler``, if it has any."""

    __slots__ = ("_count", "_find", "_method", "path")

    def __init__(self, handler: object) -> None:
        self._find: FindInline | None = getattr(handler, "inline_path", None)
        self.path: InlinePath | None = None
        self._method = "", ""
        self._count = 0

    def answer(self, request: BrpcRequest) -> Any:
        """See ``InlinePath``, for a ``request`` that is complete and not compressed. Those with user fields
        differ in more than their messages."""
        if self._find is None or request.context.headers or request.size > SMALL_BYTES:
            return None
        if self._method != (request.service, request.method):
            self._method, self.path, self._count = (request.service, request.method), None, 0
        elif self.path is not None:
            answer = self.path.answer(request.message, request.context)
            if answer is not None:
                return answer
        self._count += 1
        # seldom, if there is none
        if self._count > 1 and not self._count & (self._count - 1):
            self.path = self._find(request)
        return None
