"""Counts what a peer sends without getting an answer, so that it cannot keep us busy (RFC 9113, 10.5)."""

from __future__ import annotations

import time

from interlingua.protocols.transport.h2.frames import Code, H2Error

MAX_RESETS = 2048
"""How many streams a peer may reset, or have refused, between two answers."""

_IDLE_FRAMES, _IDLE_SECS = 1000, 10.0
"""How many frames without effect may arrive in this many seconds between two answers."""


class FloodGuard:
    """One per connection. The sender of an answer sets both counters to 0."""

    __slots__ = ("_since", "idle_frames", "resets")

    def __init__(self) -> None:
        self.idle_frames = self.resets = 0
        self._since = time.monotonic()

    def idle_frame(self) -> None:
        """Count a frame, or part of one, that carries no work. Raises ``H2Error``."""
        self.idle_frames += 1
        if self.idle_frames >= _IDLE_FRAMES:
            now = time.monotonic()
            if now - self._since < _IDLE_SECS:
                raise H2Error(Code.ENHANCE_YOUR_CALM, "too many frames without effect")
            self.idle_frames, self._since = 0, now

    def reset(self) -> None:
        """Count a stream that ended without an answer. Raises ``H2Error``."""
        self.resets += 1
        if self.resets > MAX_RESETS:
            raise H2Error(Code.ENHANCE_YOUR_CALM, "too many streams reset")
