"""A value that concurrent callers share, fetched once.

Contract: one fetch at a time; its value serves all waiting callers, and later ones for a while. A failure
goes to the waiting callers only. A fetch without waiting callers is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Fetch(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


class SharedValue(Generic[T]):
    def __init__(self, keep_secs: float) -> None:
        self._keep_secs = keep_secs
        self._fetch: _Fetch[T] | None = None
        self._value: T
        self._good_until = -1.0

    async def get(self, fetch: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The value, kept for ``keep_secs`` or fetched. Raises as ``fetch`` does."""
        if time.monotonic() < self._good_until:
            return self._value
        if self._fetch is None or self._fetch.task.done():
            self._fetch = _Fetch(asyncio.create_task(self._fetched(fetch)))
        joined = self._fetch
        joined.waiting += 1
        try:
            return await asyncio.shield(joined.task)
        finally:
            joined.waiting -= 1
            if not joined.waiting:
                joined.task.cancel()
                if self._fetch is joined:
                    self._fetch = None

    async def _fetched(self, fetch: Callable[[], Coroutine[Any, Any, T]]) -> T:
        value = await fetch()
        self._value, self._good_until = value, time.monotonic() + self._keep_secs
        return value
