"""Ends calls at their deadlines, with one timer for all: most deadlines come in order."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Protocol


class Expiring(Protocol):
    """A call. ``deadline`` is a ``time.monotonic``, None for no limit."""

    deadline: float | None

    def expire(self) -> None:
        """End the call: its deadline has passed."""


class Deadlines:
    """``calls`` returns the calls that run. ``at`` is when the timer ends, infinite without one: a deadline
    that is not earlier needs no :meth:`add`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calls: Callable[[], Iterable[Expiring]]) -> None:
        self._loop = loop
        self._calls = calls
        self._timer: asyncio.TimerHandle | None = None
        self.at = math.inf

    def add(self, deadline: float) -> None:
        """Expire calls at this time, too."""
        if self.at <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._expire)

    def cancel(self) -> None:
        """Expire no more calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.at = None, math.inf

    def _expire(self) -> None:
        self._timer, self.at = None, math.inf
        now = time.monotonic()
        nearest = None
        for call in tuple(self._calls()):
            if call.deadline is None:
                continue
            if call.deadline <= now:
                call.expire()
            elif nearest is None or call.deadline < nearest:
                nearest = call.deadline
        if nearest is not None:
            self.add(nearest)
