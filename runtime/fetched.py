"""Values by key, each fetched once: by the first caller that needs it, for all.

Contract: callers continue in the order of their calls, because requests of a sequence may wait here. While
one waits, later ones wait behind it, even after the value has come. A failure goes to the waiting callers
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Fetch = Callable[[str], Coroutine[Any, Any, T]]


@dataclass(slots=True)
class _Fetching(Generic[T]):
    """A value that ``waiting`` callers get, one after the other."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    task: asyncio.Task[T] | None = None


class FetchedValues(Generic[T]):
    """At most ``most`` values: clients may choose the keys. ``known`` has those that no caller waits for; get
    the others with :meth:`fetch`."""

    def __init__(self, most: int) -> None:
        self.known: dict[str, T] = {}
        self._most = most
        self._values: dict[str, T] = {}
        self._fetching: dict[str, _Fetching[T]] = {}

    async def fetch(self, key: str, fetch: Fetch[T]) -> T:
        """The value of ``key``, which is not ``known``. Raises as ``fetch`` does."""
        fetching = self._fetching.setdefault(key, _Fetching())
        fetching.waiting += 1
        try:
            async with fetching.turn:
                if fetching.task is None:
                    fetching.task = lasting(self._fetched(key, fetch))
                value = await asyncio.shield(fetching.task)
                # another may have been put meanwhile
                return self._values.get(key, value)
        finally:
            fetching.waiting -= 1
            if not fetching.waiting:
                del self._fetching[key]
                if key in self._values:
                    self.known[key] = self._values[key]

    def put(self, key: str, value: T) -> None:
        if len(self._values) >= self._most:
            self.clear()
        self._values[key] = value
        if key not in self._fetching:
            self.known[key] = value

    def clear(self) -> None:
        """Have all values fetched again."""
        self._values.clear()
        self.known.clear()

    async def _fetched(self, key: str, fetch: Fetch[T]) -> T:
        value = await fetch(key)
        self.put(key, value)
        return value


def lasting(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """``work`` as a task that continues without waiting callers."""
    task = asyncio.create_task(work)
    # without a waiter asyncio would log the failure as never retrieved
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
