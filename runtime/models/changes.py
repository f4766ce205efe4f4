"""Notifies waiting tasks of changed readiness."""

from __future__ import annotations

import asyncio
import contextlib


class Changes:
    """Counts changes. A reader that reads ``count`` first and then waits with :meth:`since` misses none."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def happened(self) -> None:
        """Count a change. Called on the event loop of the waiting tasks."""
        self.count += 1
        waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def since(self, count: int, secs: float | None) -> None:
        """Wait for a change after ``count``, at most ``secs`` (None: without limit)."""
        if self.count != count:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(secs):
                    await waiter
        finally:
            self._waiting.discard(waiter)
