"""An HTTP listener for an ``HttpHandler``, on one of two engines; our own has HTTP/2 as well.

The handler decides everything that a dialect could: paths, statuses, content codings, the texts of errors.
The listener decides how much is read, how long it waits and when a connection ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.options import Http2Options
from interlingua.protocols.transport.http.engine import Engine, Settings
from interlingua.protocols.transport.http.native import NativeEngine
from interlingua.protocols.transport.listener import (
    HALF_CLOSED_SECS,
    LINGER_SECS,
    Listener,
    listener_at,
)
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcHandler, GrpcRequest, HttpHandler


class _NoGrpc(GrpcHandler):
    """The ``GrpcHandler`` of a listener without gRPC."""

    def offers(self, method: str) -> None:
        """No method."""

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        """Never called."""
        raise NotImplementedError

    def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        """Never called."""
        raise NotImplementedError


class HttpServer:
    """Listens at one address. Start it once, stop it once. The options are those of ``Settings``. ``http2``
    has those of HTTP/2, which is not spoken without them, nor by the engine ``library``."""

    def __init__(
        self,
        handler: HttpHandler,
        address: Address | Listener,
        *,
        engine: Literal["native", "library"] = "native",
        max_response_bytes: int | None = None,
        load: ListenerLoad | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        half_closed_secs: float = HALF_CLOSED_SECS,
        linger_secs: float = LINGER_SECS,
        accept_te_with_length: bool = False,
        http2: Http2Options | None = None,
    ) -> None:
        self._listener = listener_at(address)
        load = ListenerLoad() if load is None else load
        self._library = engine == "library"
        self._settings = Settings(
            handler,
            max_response_bytes,
            timeouts,
            half_closed_secs,
            linger_secs,
            accept_te_with_length,
            load,
        )
        self._http2: GrpcServer | None = None
        if http2 is not None and not self._library:
            self._http2 = GrpcServer(
                _NoGrpc(),
                self._listener,
                max_response_bytes=max_response_bytes,
                load=load,
                timeouts=timeouts,
                http2=http2,
                http=handler,
            )

    async def start(self) -> Address:
        """Listen. Returns the bound address, port filled in. Raises ``OSError``."""
        self._engine = self._made()
        return await self._listener.start(self._engine.connection)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    @property
    def at_work(self) -> int:
        """The number of requests in flight."""
        return self._engine.at_work + (0 if self._http2 is None else self._http2.at_work)

    def retire(self) -> None:
        """Accept nothing more. The next answer of a connection has ``Connection: close`` (RFC 9112, 9.6)."""
        self._listener.retire()
        self._engine.retire()
        if self._http2 is not None:
            self._http2.retire_connections()

    async def stop(self, grace_secs: float) -> int:
        """Stop; returns how many requests were cut. See ``ConnectionSet.drain``."""
        draining = [self._engine.stop(grace_secs)]
        if self._http2 is not None:
            draining.append(self._http2.drain(grace_secs))
        return await self._listener.stop(*draining)

    def _made(self) -> Engine:
        if not self._library:
            return NativeEngine(self._settings, None if self._http2 is None else self._http2.connection)
        # aiohttp takes a fifth of a second to import
        from interlingua.protocols.transport.http.library import LibraryEngine

        return LibraryEngine(self._settings)
