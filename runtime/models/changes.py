"""Tells those who wait for it that the readiness of something has changed."""

from __future__ import annotations

import asyncio
import contextlib


class Changes:
    """Counts changes. What is read after ``count`` was, and before :meth:`since` that count, misses none."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def happened(self) -> None:
        """There was one more. Called where those who wait run, on their event loop."""
        self.count += 1
        waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def since(self, count: int, secs: float | None) -> None:
        """Wait until there was one more than ``count``, or for ``secs`` where that is stated."""
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
