"""The buffer of a body that arrives in DATA frames; it grows with what has arrived."""

from __future__ import annotations

from interlingua.protocols.transport.memory import Allocate

_FIRST_BYTES = 1 << 14

_CLAIMED_BYTES = 8 << 20
"""How much is allocated for a body whose length is known and of which nothing has arrived."""

_GROWTH = 8
"""How many times what has arrived the buffer may be: few copies of long bodies, no memory for a claim."""


class BodyBuffer:
    """A ``Sink`` for a body of ``length`` bytes, None if that is not known."""

    __slots__ = ("_allocate", "_length", "buffer", "end", "filled")

    def __init__(self, length: int | None, allocate: Allocate) -> None:
        self._allocate = allocate
        self._length = length
        self.buffer = memoryview(bytearray())
        self.filled = self.end = 0

    def take(self, data: memoryview) -> None:
        """Append ``data``. Raises ``MemoryError``."""
        after = self.filled + len(data)
        if after > len(self.buffer):
            self._grow(after)
        self.buffer[self.filled : after] = data
        self.filled = after

    def whole(self) -> memoryview:
        """The complete body."""
        return self.buffer[: self.filled].toreadonly()

    def _grow(self, needed: int) -> None:
        if self._length is None:
            size = max(_FIRST_BYTES, 2 * needed)
        else:
            size = max(needed, min(self._length, max(_CLAIMED_BYTES, _GROWTH * needed)))
        grown = self._allocate(size)
        grown[: self.filled] = self.buffer[: self.filled]
        # the last byte is not received in place: its arrival ends the body, or needs more space
        self.buffer, self.end = grown, size - 1
