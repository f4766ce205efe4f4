"""A ring of control records from one process to another: one writer, one reader, no locks.

The memory has two counters, each written by one side only and in a cache line of its own, and then slots of
one size. The writer fills a slot before it advances ``head``; the reader empties a slot before it advances
``tail``. x86 keeps the order of stores and of loads; on other processors the system calls of the doorbell do.
"""

from __future__ import annotations

import mmap
from struct import Struct

SLOT_BYTES = 4096
"""The size of a slot. Most requests for small tensors fit into one, tensors included."""

RECORD_BYTES = SLOT_BYTES - 4
"""The largest record."""

_SIZE = Struct("<I")
_HEAD, _TAIL = 0, 8
"""The places of the counters, in units of 8 bytes."""

_SLOTS = mmap.PAGESIZE
"""The offset of the first slot."""


def ring_bytes(slots: int) -> int:
    """The size of the memory of a ring."""
    return _SLOTS + slots * SLOT_BYTES


class _Side:
    """``memory`` as both sides see it; the number of its slots is a power of two."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memoryview(memory)
        self._counters = self._memory[:_SLOTS].cast("Q")
        self._mask = (len(self._memory) - _SLOTS) // SLOT_BYTES - 1


class RingWriter(_Side):
    """The side that writes."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(memory)
        self._head = self._counters[_HEAD]

    def put(self, *parts: bytes | memoryview) -> bool:
        """Write one record, ``parts`` one after the other, ``RECORD_BYTES`` at most. Returns False if no slot
        is free."""
        head = self._head
        if head - self._counters[_TAIL] > self._mask:
            return False
        at = _SLOTS + (head & self._mask) * SLOT_BYTES
        memory, start = self._memory, at + 4
        for part in parts:
            end = start + len(part)
            memory[start:end] = part
            start = end
        _SIZE.pack_into(memory, at, start - at - 4)
        self._head = self._counters[_HEAD] = head + 1
        return True


class RingReader(_Side):
    """The side that reads."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(memory)
        self._tail = self._counters[_TAIL]

    def take(self, most: int) -> list[bytes]:
        """Up to ``most`` records, oldest first. Raises ``ValueError`` for a record that no writer makes."""
        tail, memory = self._tail, self._memory
        count = self._counters[_HEAD] - tail
        if not 0 <= count <= self._mask + 1:
            raise ValueError(f"a ring of {self._mask + 1} slots claims {count} records")
        count = min(count, most)
        records = []
        for number in range(tail, tail + count):
            at = _SLOTS + (number & self._mask) * SLOT_BYTES
            (size,) = _SIZE.unpack_from(memory, at)
            if size > RECORD_BYTES:
                raise ValueError(f"a record claims {size} bytes, of at most {RECORD_BYTES}")
            records.append(bytes(memory[at + 4 : at + 4 + size]))
        self._tail = self._counters[_TAIL] = tail + count
        return records
