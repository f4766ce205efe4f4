"""A listener for HTTP, gRPC and bRPC: the first bytes of a connection decide which server gets it.

With TLS, connections that begin with a handshake go on with it, then with the protocol that ALPN has chosen
(RFC 7301), without one with that of the first bytes. The header of a proxy comes before all of it. Framed
messages have no magic number, so they need a listener of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.any.handshake import Handshake
from interlingua.protocols.transport.brpc.first_bytes import protocol_of
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.protocols.transport.hand_over import hand_over
from interlingua.protocols.transport.listener import ConnectionSet, Listener
from interlingua.protocols.transport.sockets import client_host, reported_client
from interlingua.protocols.transport.tls import TlsContext, reason
from interlingua.protocols.transport.tls_server import accepts

_TLS_HANDSHAKE = 0x16
"""The type of the first record (RFC 8446, 5.1); no other protocol here begins with this byte."""

_ALPN = {"h2": "grpc", "http/1.1": "http"}
"""The server for a protocol of ALPN."""

_log = logging.getLogger(__name__)


class AnyServer:
    """Listens at one address. Start it once, stop it once. ``servers`` has the servers of all protocols, and
    their options. With ``tls`` connections may begin with a handshake, without ``plain`` they have to."""

    def __init__(
        self, servers: BrpcServer, listener: Listener, tls: TlsContext | None = None, *, plain: bool = True
    ) -> None:
        self._servers = servers
        self._listener = listener
        self.tls = tls
        self.plain = plain
        self.header_secs = servers.timeouts.header_secs
        self.connections: ConnectionSet[_Undetected] = ConnectionSet(servers.connections.load, "any")
        self.accept: dict[str, Callable[[], asyncio.BaseProtocol]] = {
            "http": servers.http.connection,
            "grpc": servers.grpc.connection,
            "baidu_std": servers.connection,
        }

    async def start(self) -> Address:
        """Listen. Returns the bound address, port filled in. Raises ``OSError``."""
        return await self._listener.start(partial(_Undetected, self, encrypted=False))

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    @property
    def at_work(self) -> int:
        """The number of calls and requests in flight."""
        return self._servers.at_work

    def retire(self) -> None:
        """Accept nothing more. See the servers of the protocols."""
        self._listener.retire()
        self.connections.retire()
        self._servers.retire_connections()

    async def stop(self, grace_secs: float) -> int:
        """Stop; returns how many requests were cut. See ``ConnectionSet.drain``."""
        return await self._listener.stop(self.connections.drain(grace_secs), self._servers.drain(grace_secs))


class _Undetected(asyncio.Protocol):
    """A connection until its first bytes have arrived."""

    unsent = False

    def __init__(self, server: AnyServer, encrypted: bool) -> None:
        self._server = server
        self._encrypted = encrypted
        self._received = b""
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        loop, server = asyncio.get_running_loop(), self._server
        self._timer = loop.call_later(server.header_secs, self.abort)
        server.connections.add(self, transport)

    def data_received(self, data: bytes) -> None:
        """Hand the connection to the server of its protocol, close it if there is none."""
        data = self._received + data
        server = self._server
        if data[0] == _TLS_HANDSHAKE and server.tls is not None and not self._encrypted:
            self._timer.cancel()
            # what follows is for the protocol of TLS
            self._transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._encrypt(server.tls, data))
            return
        protocol = protocol_of(data) if server.plain or self._encrypted else "unknown"
        if protocol is None:
            self._received = data
        elif protocol == "unknown":
            facts = {"address": str(server.address), "peer": client_host(self._transport)}
            _log.debug("unknown protocol, connection closed", extra={"facts": facts})
            self.abort()
        else:
            self._leave()
            hand_over(self._transport, server.accept[protocol](), data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._leave()

    # called by the connection set

    def drain(self) -> None:
        """Close: no request has arrived."""
        self.abort()

    cut = drain

    def abort(self) -> None:
        """Close the socket now."""
        if self._handshake is not None:
            self._handshake.cancel()
        self._transport.abort()

    async def _encrypt(self, tls: TlsContext, hello: bytes) -> None:
        """Hand the connection over once its handshake is done. It counts as open meanwhile."""
        handshake, server = Handshake(), self._server
        try:
            transport = await handshake.start(
                self._transport, hello, tls.current(), reported_client(self._transport)
            )
        except (OSError, TimeoutError) as error:
            facts = {"peer": client_host(self._transport), "reason": reason(error) or type(error).__name__}
            _log.debug("TLS handshake failed", extra={"facts": facts})
            self._transport.abort()
            return
        finally:
            self._leave()
        if not accepts(tls, transport):
            transport.abort()
            return
        chosen = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        accept = (
            partial(_Undetected, server, encrypted=True) if chosen is None else server.accept[_ALPN[chosen]]
        )
        hand_over(transport, accept(), handshake.received)

    def _leave(self) -> None:
        self._timer.cancel()
        self._server.connections.remove(self, self._transport)
