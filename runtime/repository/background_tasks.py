"""Loads and unloads that continue after their caller disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class BackgroundTasks:
    """Tasks that run to their end, whether or not a caller waits for them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        # without a caller, asyncio would log the exception as never retrieved
        if not task.cancelled():
            task.exception()
