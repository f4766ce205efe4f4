"""A ring of control records from one process to another: one writer, one reader, no locks.

A record is a plain value in marshal's format, which has its own end. The memory has two counters, each
written by one side only and in a cache line of its own, and then slots of one size. The writer fills a slot
before it advances ``head``; the reader empties a slot before it advances ``tail``. x86 keeps the order of
stores and of loads; on other processors the system calls of the doorbell do.
"""

from __future__ import annotations

import marshal
import mmap
from typing import Any

SLOT_BYTES = 4096
"""The size of a slot, and of the largest record. Most requests for small tensors fit, tensors included."""

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
        self._full = self._counters[_TAIL] + self._mask + 1

    def put(self, record: bytes) -> bool:
        """Write one marshalled record, ``SLOT_BYTES`` at most. Returns False if no slot is free."""
        head = self._head
        if head == self._full:
            # not for each record: the other processor writes to that cache line
            self._full = self._counters[_TAIL] + self._mask + 1
            if head == self._full:
                return False
        at = _SLOTS + (head & self._mask) * SLOT_BYTES
        self._memory[at : at + len(record)] = record
        self._head = self._counters[_HEAD] = head + 1
        return True


class RingReader(_Side):
    """The side that reads."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(memory)
        self._tail = self._counters[_TAIL]

    def take(self, most: int) -> list[Any]:
        """Up to ``most`` records, oldest first, as values. Raises ``ValueError`` for a record that no writer
        makes."""
        tail, memory = self._tail, self._memory
        count = self._counters[_HEAD] - tail
        if not 0 <= count <= self._mask + 1:
            raise ValueError(f"a ring of {self._mask + 1} slots claims {count} records")
        count = min(count, most)
        records, loads, mask = [], marshal.loads, self._mask
        try:
            for number in range(tail, tail + count):
                at = _SLOTS + (number & mask) * SLOT_BYTES
                # written by another process of this server
                records.append(loads(memory[at : at + SLOT_BYTES]))
        except (EOFError, TypeError, ValueError) as error:
            raise ValueError(f"a slot claims to have a record: {error}") from None
        self._tail = self._counters[_TAIL] = tail + count
        return records
