"""Our own engine of HTTP listeners: HTTP/1 on asyncio's protocols, heads read by llhttp.

The connections are in ``http1.connection``; here is what concerns all of them: their time and their end.
"""

from __future__ import annotations

import asyncio
import contextlib

from interlingua.protocols.transport.http.engine import READING_TURNS, Settings, turns
from interlingua.protocols.transport.http1.connection import Connection, Crowd

_LOOKS = 8
"""How often silent clients are looked for within the time that they have. One timer for all connections: one
for each would be set anew with every request."""

_CUT_SECS = 1.0
"""How long a request that was cut may take to notice."""


class NativeEngine:
    """An ``Engine``."""

    def __init__(self, settings: Settings) -> None:
        self._crowd = Crowd(settings)
        self._interval = min(settings.idle_secs, settings.stall_secs) / _LOOKS
        self._timer: asyncio.TimerHandle | None = None

    @property
    def at_work(self) -> int:
        """How many requests are not answered yet."""
        return len(self._crowd.at_work)

    def connection(self) -> asyncio.Protocol:
        """What a new connection is to call."""
        if self._timer is None:
            self._look_later()
        return Connection(self._crowd)

    async def stop(self, grace_secs: float) -> int:
        """Close idle connections, let running requests end for ``grace_secs``, cut the rest: how many these
        were. A request has ended when its client has taken the answer."""
        crowd = self._crowd
        crowd.stopping = True
        await turns(READING_TURNS)
        for connection in tuple(crowd.connections):
            connection.close_if_idle()
        if crowd.connections or crowd.at_work:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_secs):
                    await crowd.over.wait()
        cut = sum(connection.owes for connection in crowd.connections)
        tasks = [connection.task for connection in crowd.connections if connection.task is not None]
        for connection in tuple(crowd.connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=_CUT_SECS)
        if self._timer is not None:
            self._timer.cancel()
        return cut

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _look(self) -> None:
        """Look for silent clients, as long as there are clients."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in tuple(self._crowd.connections):
            connection.look(now)
        if self._crowd.connections:
            self._look_later()
