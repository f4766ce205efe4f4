"""Our own engine of HTTP listeners: HTTP/1 on asyncio's protocols, headers parsed by llhttp."""

from __future__ import annotations

import asyncio
from time import monotonic

from interlingua.protocols.transport.http.connection import HttpConnection
from interlingua.protocols.transport.http.engine import Settings
from interlingua.protocols.transport.listener import ConnectionSet

_CHECKS = 8
"""How often per idle or stall time connections are checked. One timer serves all connections: a timer for
each would be reset with every request."""


class NativeEngine:
    """An ``Engine``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connections: ConnectionSet[HttpConnection] = ConnectionSet(settings.load)
        self._interval = min(settings.idle_secs, settings.stall_secs) / _CHECKS
        self._timer: asyncio.TimerHandle | None = None

    @property
    def at_work(self) -> int:
        """The number of requests in flight."""
        return len(self._connections.in_flight)

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if self._timer is None:
            self._check_later()
        return HttpConnection(self._settings, self._connections)

    async def stop(self, grace_secs: float) -> int:
        """See ``ConnectionSet.drain``."""
        cut = await self._connections.drain(grace_secs)
        if self._timer is not None:
            self._timer.cancel()
        return cut

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def _check(self) -> None:
        """Check for silent clients, as long as there are clients."""
        self._timer = None
        now = monotonic()
        for connection in tuple(self._connections.open):
            connection.check(now)
        if self._connections.open:
            self._check_later()
