"""Checks whether a server listens at an address."""

from __future__ import annotations

import asyncio
from typing import cast

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.connect import open_connection, reason_of
from interlingua.protocols.transport.tls import TlsContext


async def unreachable(
    address: Address, timeout_secs: float, tls: TlsContext | None = None, at: str = ""
) -> str:
    """Why ``address`` accepts no connection within ``timeout_secs``; empty if it does. ``at`` is the numeric
    form of its host, if it is known."""
    try:
        async with asyncio.timeout(timeout_secs):
            _, connection = await open_connection(address, at or address.host, _Probe, tls)
    except TimeoutError:
        return f"no connection within {timeout_secs:g} seconds"
    except OSError as fault:
        return reason_of(fault)
    await connection.close()
    return ""


_GOODBYE_SECS = 1.0
"""How long a server may take to answer the end of TLS."""


class _Probe(asyncio.Protocol):
    """A connection that carries nothing."""

    def __init__(self) -> None:
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what :meth:`close` needs."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if not self._closed.done():
            self._closed.set_result(None)

    async def close(self) -> None:
        """Close the socket."""
        self._transport.close()
        await asyncio.wait((self._closed,), timeout=_GOODBYE_SECS)
        self._transport.abort()
        await self._closed
