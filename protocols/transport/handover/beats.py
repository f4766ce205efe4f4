"""A page that two processes share: one writes how it is, the other looks before it hands over a connection.

The writer never waits for the reader, and a writer that is stopped or busy is noticed without a message.
"""

from __future__ import annotations

import mmap
from time import monotonic_ns

BEAT_SECS = 0.1
"""The interval of beats."""

PAGE_BYTES = mmap.PAGESIZE

_BEAT, _ENDED = range(2)


class Beats:
    """``page`` as both processes see it."""

    def __init__(self, page: mmap.mmap) -> None:
        self._values = memoryview(page).cast("Q")

    # --- the writer

    def beat(self, ended: int) -> None:
        """Publish that the event loop turns, and how many connections have ended since the start."""
        self._values[_ENDED] = ended
        self._values[_BEAT] = monotonic_ns()

    # --- the reader

    @property
    def silent_secs(self) -> float:
        """How long the writer has not beaten; since the system's start if it never has."""
        return (monotonic_ns() - self._values[_BEAT]) / 1e9

    @property
    def begun(self) -> bool:
        """Whether the writer has beaten at all."""
        return self._values[_BEAT] != 0

    @property
    def ended(self) -> int:
        """How many connections of the writer have ended."""
        return self._values[_ENDED]
