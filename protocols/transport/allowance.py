"""Bounds how often something may happen over time: a token bucket."""

from __future__ import annotations

import time
from collections.abc import Callable


class Allowance:
    """``burst`` tokens at once, and ``per_sec`` more as time passes. The owner may add tokens while there are
    fewer than ``burst``. ``clock`` is in seconds, and read only when no token is left."""

    __slots__ = ("_clock", "_per_sec", "_since", "burst", "tokens")

    def __init__(self, burst: int, per_sec: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.burst = burst
        self.tokens = float(burst)
        self._per_sec = per_sec
        self._clock = clock
        self._since = clock()

    def spend(self, tokens: float = 1.0) -> bool:
        """Take ``tokens``. Returns whether there were as many."""
        self.tokens -= tokens
        if self.tokens < 0:
            now = self._clock()
            self.tokens = min(float(self.burst), self.tokens + (now - self._since) * self._per_sec)
            self._since = now
        return self.tokens >= 0
