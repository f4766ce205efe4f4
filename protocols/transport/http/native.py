"""Our own engine of HTTP listeners: HTTP/1 on asyncio's protocols, headers parsed by llhttp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlingua.protocols.transport.http.connection import HttpConnection
from interlingua.protocols.transport.http.engine import Settings
from interlingua.protocols.transport.listener import ConnectionSet
from interlingua.protocols.transport.timeouts import Sweep


class NativeEngine:
    """An ``Engine``. ``http2`` makes the protocol of a connection that speaks HTTP/2; without it none may."""

    def __init__(self, settings: Settings, http2: Callable[[], asyncio.BaseProtocol] | None = None) -> None:
        self._settings = settings
        self._http2 = http2
        self._connections: ConnectionSet[HttpConnection] = ConnectionSet(settings.load, "http")
        self._sweep = Sweep(self._connections.open, settings.timeouts)

    @property
    def at_work(self) -> int:
        """The number of requests in flight."""
        return len(self._connections.in_flight)

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        self._sweep.begin()
        return HttpConnection(self._settings, self._connections, self._http2)

    def retire(self) -> None:
        """See ``ConnectionSet.retire``."""
        self._connections.retire()

    async def stop(self, grace_secs: float) -> int:
        """See ``ConnectionSet.drain``."""
        cut = await self._connections.drain(grace_secs)
        self._sweep.stop()
        return cut
