"""TLS on a connection whose first bytes have been read already."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from interlingua.protocols.transport.hand_over import feed
from interlingua.protocols.transport.sockets import set_client
from interlingua.protocols.transport.tls_server import HANDSHAKE_SECS


class Handshake(asyncio.Protocol):
    """The protocol of a connection between its TLS handshake and the server that gets it: keeps what arrives
    meanwhile."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        """The client sends its request with the end of its handshake."""
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """No server gets the connection."""
        self.lost = True

    async def start(
        self,
        transport: asyncio.Transport,
        hello: bytes,
        context: ssl.SSLContext,
        client: tuple[str, int] | None,
    ) -> asyncio.Transport:
        """The transport over TLS of a connection that begins with ``hello``; ``client`` is that of a proxy.
        Raises ``OSError`` if the client does not complete the handshake, or is gone."""
        loop = asyncio.get_running_loop()
        starting = loop.create_task(
            loop.start_tls(transport, self, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECS)
        )
        try:
            await asyncio.sleep(0)
            # the event loop has set its protocol of TLS, and connects it in the next turn
            loop.call_soon(feed, transport, transport.get_protocol(), hello)
            encrypted = cast("asyncio.Transport", await starting)
        finally:
            starting.cancel()
        if self.lost or encrypted.is_closing():
            raise ConnectionAbortedError("ended with its handshake")
        if client is not None:
            set_client(encrypted, client)
        return encrypted
