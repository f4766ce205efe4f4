"""Checks whether a server listens at an address."""

from __future__ import annotations

import asyncio

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.connect import open_connection, reason_of


async def unreachable(address: Address, timeout_secs: float) -> str:
    """Why ``address`` accepts no connection within ``timeout_secs``; empty if it does."""
    try:
        async with asyncio.timeout(timeout_secs):
            connection = await open_connection(address, address.host, _Probe)
    except TimeoutError:
        return f"no connection within {timeout_secs:g} seconds"
    except OSError as fault:
        return reason_of(fault)
    await connection.close()
    return ""


class _Probe(asyncio.Protocol):
    """A connection that carries nothing."""

    def __init__(self) -> None:
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what :meth:`close` needs."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if not self._closed.done():
            self._closed.set_result(None)

    async def close(self) -> None:
        """Close the socket."""
        self._transport.close()
        await self._closed
