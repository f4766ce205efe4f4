"""What the client of each transport does with the values of ``protocols.wire``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import ClassVar, Protocol

from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    Buffer,
    FramedCall,
    FramedReply,
    GrpcAnswer,
    GrpcRequest,
    HttpCall,
    HttpReply,
)


class HttpClient(Protocol):
    """A connection pool to one HTTP upstream. ``relays``: its deadlines do not advance while a request waits
    for its caller, so that it may be sent while its body arrives."""

    relays: ClassVar[bool]

    async def send(self, request: HttpCall) -> HttpReply:
        """Send ``request`` and read the whole reply, within the deadline of ``request.context``.

        Raises ``ConnectionFailedError``, and ``InferenceError`` DEADLINE_EXCEEDED, or TOO_LARGE for a reply
        above the limit.
        """

    def stream(self, request: HttpCall) -> AsyncGenerator[HttpReply, None]:
        """Send ``request`` and give the body of the reply in pieces as they come, each with the status and
        the headers; an empty one is the end. They are cut anyhow. A reply that is no success, or is
        compressed, comes whole. Raises as :meth:`send` does; to close the generator is to hang up."""

    async def close(self) -> None:
        """Close the connections."""


class GrpcClient(Protocol):
    """A channel to one gRPC upstream."""

    async def send(self, request: GrpcRequest) -> GrpcAnswer:
        """Make one unary call within the deadline of ``request.context``.

        A status of the server's own comes back as an answer; raises ``ConnectionFailedError``, and
        ``InferenceError`` DEADLINE_EXCEEDED, CANCELLED, TOO_LARGE.
        """

    def stream(
        self, request: GrpcRequest, messages: AsyncIterator[Buffer] | None = None
    ) -> AsyncGenerator[GrpcAnswer, None]:
        """Make one call of a streaming method with ``messages`` as they come, or with the one message of
        ``request``: the answers as they come. A status of the server's own that is not OK is the last one;
        raises as :meth:`send` does, and what ``messages`` raises. To close the generator cancels the call."""

    async def close(self) -> None:
        """Close the channel."""


class BrpcClient(Protocol):
    """A connection to one bRPC upstream."""

    async def send(self, request: BrpcRequest) -> BrpcAnswer:
        """Make one call within the deadline of ``request.context``.

        Raises ``ConnectionFailedError``, and ``InferenceError``: the server's own error with its words,
        DEADLINE_EXCEEDED, TOO_LARGE for a reply above the limit.
        """

    async def close(self) -> None:
        """Close the connection."""


class FramedClient(Protocol):
    """A connection pool to one framed upstream."""

    async def send(self, request: FramedCall) -> FramedReply:
        """Send ``request`` and read the reply, within the deadline of ``request.context``.

        Raises ``ConnectionFailedError``, and ``InferenceError`` DEADLINE_EXCEEDED, or TOO_LARGE for a reply
        above the limit.
        """

    async def close(self) -> None:
        """Close the connections."""
