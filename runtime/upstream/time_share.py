"""Bounds the share of the event loop's time that a kind of work takes, however often callers cause it: they
might vary their requests so that each is learned, and none repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class TimeShare:
    """``most`` seconds of work at once, and ``share`` seconds more per second. Work that has begun is not
    interrupted: it may leave a debt. ``clock`` is in seconds."""

    __slots__ = ("_began", "_clock", "_left", "_most", "_share", "_since")

    def __init__(self, share: float, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._most = most
        self._clock = clock
        self._left = most
        self._since = self._began = clock()

    def begin(self) -> bool:
        """Begin a piece of work, which calls :meth:`end`. False if no time is left for it."""
        self._began = now = self._clock()
        self._left = min(self._most, self._left + self._share * (now - self._since))
        self._since = now
        return self._left > 0

    def end(self) -> None:
        """The piece of work has ended."""
        self._left -= self._clock() - self._began
