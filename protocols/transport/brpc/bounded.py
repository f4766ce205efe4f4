"""The limit on concurrent calls of a bRPC listener, for those that come over HTTP and gRPC.

It is one limit for all that the port speaks. A call over HTTP is refused with 503 and bRPC's number, one over
gRPC with the status that bRPC has for that number.
"""

from __future__ import annotations

from typing import Protocol

from interlingua.protocols.brpc_status import BrpcStatus
from interlingua.protocols.transport.brpc.refusals import full
from interlingua.protocols.transport.grpc.status import RESOURCE_EXHAUSTED
from interlingua.protocols.wire import (
    GrpcAnswer,
    GrpcHandler,
    GrpcRequest,
    HttpAnswer,
    HttpHandler,
    HttpRequest,
)


class Limited(Protocol):
    """A listener: how many calls may be at work, None for any number, and how many are."""

    max_concurrency: int | None

    @property
    def at_work(self) -> int:
        """How many calls and requests are not answered yet, over any protocol."""


class BoundedHttp:
    """An ``HttpHandler`` that refuses requests above the limit of ``server``, others are for ``handler``."""

    def __init__(self, handler: HttpHandler, server: Limited) -> None:
        self._handler = handler
        self._server = server
        self.prefix = handler.prefix
        self.serve = handler.serve
        self.refuse = handler.refuse

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """As ``HttpHandler`` has it."""
        limit = self._server.max_concurrency
        # the request itself is at work already
        if limit is None or self._server.at_work <= limit:
            return self._handler.head(request)
        number = BrpcStatus.ELIMIT
        headers = (("Content-Type", "text/plain"), ("x-bd-error-code", f"{number:d}"))
        return HttpAnswer(503, headers, [f"[E{number:d}]{full(limit)}".encode()])


class BoundedGrpc:
    """A ``GrpcHandler`` that refuses calls above the limit of ``server``, others are for ``handler``."""

    def __init__(self, handler: GrpcHandler, server: Limited) -> None:
        self._handler = handler
        self._server = server
        self.offers = handler.offers
        self.restricted = handler.restricted
        self.refusal = handler.refusal
        self.stream = handler.stream

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        """As ``GrpcHandler`` has it."""
        limit = self._server.max_concurrency
        # the call itself is at work already
        if limit is None or self._server.at_work <= limit:
            return await self._handler.serve(request)
        return GrpcAnswer(code=RESOURCE_EXHAUSTED, details=full(limit))
