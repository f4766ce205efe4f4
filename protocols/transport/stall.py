"""Clients that take nothing of what is written to them: how a connection is rid of them."""

from __future__ import annotations

import asyncio


class StallWatch:
    """Aborts a connection whose client takes nothing for ``secs``, however much it took before. It runs
    until it is cancelled."""

    def __init__(self, transport: asyncio.Transport, secs: float) -> None:
        self._transport = transport
        self._secs = secs
        self._start()

    def cancel(self) -> None:
        """The client has taken enough."""
        self._timer.cancel()

    def _start(self) -> None:
        self._left = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(self._secs, self._look)

    def _look(self) -> None:
        if self._transport.get_write_buffer_size() < self._left:
            self._start()
        else:
            self._transport.abort()
