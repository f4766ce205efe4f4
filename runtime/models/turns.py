"""Turns: tasks with the same key run one after the other, in the order of their requests.

Tasks of different keys do not wait for each other. A key without tasks takes no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from interlingua.protocols.wire import NO_CONTEXT
from interlingua.runtime.models.deadline import seconds_left, too_late
from interlingua.schemas import Context


class Turns:
    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._users: dict[Hashable, int] = {}

    @asynccontextmanager
    async def of(self, key: Hashable, model: str = "", context: Context = NO_CONTEXT) -> AsyncIterator[None]:
        """Have a turn of ``key`` until the block ends. Raises DEADLINE_EXCEEDED if that of ``context`` comes
        first; the error names ``model``."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            try:
                async with asyncio.timeout(seconds_left(model, context)):
                    await lock.acquire()
            except TimeoutError:
                raise too_late(model) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
