"""An arena of blocks for large tensors: one process allocates and fills blocks, another reads them in place.

Only the owner allocates. A block is free again when neither process has a view of it: the interpreter counts
views, so no message returns a block. Each time that the owner sends a block, it sets one flag in shared
memory, which the reader clears with its last view. The owner looks at the flags when it needs space. It uses
the lowest space that fits, because its pages are most likely in the processor's cache. The pages of higher
space go back to the kernel when it is no longer used.
"""

from __future__ import annotations

import mmap
import os
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = 4096
"""Blocks consist of whole pages."""

TICKETS = 1 << 16
"""How often blocks may be sent and not be read; one byte of flags each."""

_RECLAIM_BYTES = 4 << 20
"""How much may be free without the owner's knowledge: more would leave the processor's cache."""


class Extent(NamedTuple):
    """``size`` bytes from ``offset`` of an arena; ``ticket`` is the flag to clear after the last view."""

    ticket: int
    offset: int
    size: int


class Block(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """The bytes of a block, which its views refer to. ``arena`` is its owner, ``offset`` its place there."""

    arena: Arena
    offset: int


@dataclass(slots=True)
class _Use:
    """A block in use: its size, its views in the owner, and where it was sent."""

    size: int
    views: weakref.ref[Block]
    tickets: list[int] = field(default_factory=list)


class Arena:
    """The owner's side of ``memory``; ``flags`` has ``TICKETS`` bytes. Use in one thread; views may end in
    any. ``used_bytes`` of ``size`` were in use when the owner last looked."""

    def __init__(self, memory: mmap.mmap, flags: mmap.mmap) -> None:
        self._memory = memory
        self._flags = memoryview(flags)
        self.size = len(memory)
        self._free = [(0, self.size)]
        self._used: dict[int, _Use] = {}
        self._tickets = deque(range(TICKETS))
        self._reclaim_at = _RECLAIM_BYTES
        self._reached = self._written = 0
        self.used_bytes = 0

    def allocate(self, size: int, spare: int = 0) -> memoryview | None:
        """A writable view of ``size`` bytes, at least one, which hold old data; None without space for that
        and ``spare`` bytes more."""
        need = -(-size // PAGE_BYTES) * PAGE_BYTES
        most = self.size - need - spare
        if self.used_bytes > min(self._reclaim_at, most):
            self._reclaim()
            if self.used_bytes > most:
                return None
        offset = self._extent(need)
        if offset is None:
            self._reclaim()
            offset = self._extent(need)
            if offset is None:
                return None
        block = np.frombuffer(self._memory, np.uint8, size, offset).view(Block)
        block.arena, block.offset = self, offset
        self._used[offset] = _Use(need, weakref.ref(block))
        if offset + need > self._reached:
            self._reached = offset + need
        self.used_bytes += need
        return block.data

    def send(self, view: memoryview) -> Extent | None:
        """The place of ``view`` for one message to the reader; None if it is not of this arena, or if too
        many are not yet read."""
        block: object = view.obj
        if not isinstance(block, Block) or block.arena is not self:
            return None
        if not self._tickets:
            self._reclaim()
            if not self._tickets:
                return None
        ticket = self._tickets.popleft()
        self._flags[ticket] = 1
        self._used[block.offset].tickets.append(ticket)
        return Extent(ticket, block.offset + _address(view) - _address(block.data), len(view))

    def withdraw(self, ticket: int) -> None:
        """The message with ``ticket`` is not sent."""
        self._flags[ticket] = 0

    def trim(self) -> None:
        """Give the kernel the pages of free space above the highest block since the last call."""
        reached, self._reached = self._reached, 0
        written = max(self._written, reached)
        if written <= reached:
            self._written = written
            return
        self._reclaim()
        for offset, size in self._free:
            begin, end = max(offset, reached), min(offset + size, written)
            begin = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
            end -= end % mmap.PAGESIZE
            if begin < end:
                # for both processes (madvise(2)); what is read there next is zeros
                self._memory.madvise(mmap.MADV_REMOVE, begin, end - begin)
        # blocks in use above keep their pages until a later call
        self._written = max([reached, *(offset + use.size for offset, use in self._used.items())])

    def _extent(self, need: int) -> int | None:
        """Take ``need`` bytes out of the first free extent that has them."""
        for index, (offset, size) in enumerate(self._free):
            if size >= need:
                if size == need:
                    del self._free[index]
                else:
                    self._free[index] = offset + need, size - need
                return offset
        return None

    def _reclaim(self) -> None:
        flags = self._flags
        for offset, use in list(self._used.items()):
            for ticket in [each for each in use.tickets if not flags[each]]:
                use.tickets.remove(ticket)
                self._tickets.append(ticket)
            if not use.tickets and use.views() is None:
                del self._used[offset]
                self.used_bytes -= use.size
                self._release(offset, use.size)
        # a share of what is in use: so each block is looked at a few times, however many there are
        self._reclaim_at = self.used_bytes + max(self.used_bytes >> 2, _RECLAIM_BYTES)

    def _release(self, offset: int, size: int) -> None:
        """Return an extent, joined with those next to it."""
        free = self._free
        index = bisect_left(free, (offset, size))
        if index < len(free) and free[index][0] == offset + size:
            size += free.pop(index)[1]
        if index and sum(free[index - 1]) == offset:
            offset, size = free[index - 1][0], free[index - 1][1] + size
            free[index - 1] = offset, size
        else:
            free.insert(index, (offset, size))


class Received(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """The bytes at a place, which their views refer to. ``reader`` has the arena, unless this is a slice."""

    reader: ArenaReader | None = None


class ArenaFile(NamedTuple):
    """The open file whose bytes from ``start`` are an arena."""

    descriptor: int
    start: int


class ArenaReader:
    """The reader's side. It owns ``file``, which other processes may map; the arena has ``size`` bytes."""

    def __init__(self, memory: mmap.mmap, flags: mmap.mmap, file: ArenaFile | None = None) -> None:
        self._memory = memory
        self.size = len(memory)
        self.file = file
        if file is not None:
            weakref.finalize(self, os.close, file.descriptor)
        self._address = _address(memoryview(memory))
        self._flags = memoryview(flags)
        self._held: dict[int, weakref.ref[NDArray[Any]]] = {}

    def view(self, place: Extent) -> memoryview:
        """The bytes at ``place``, read-only. Raises ``ValueError`` for a place outside of the arena."""
        ticket, offset, size = place
        if offset + size > self.size or ticket >= TICKETS:
            raise ValueError(f"a message claims {size} bytes at {offset} of an arena of {self.size}")
        whole = Received(size, np.uint8, self._memory, offset)
        whole.reader = self
        self._held[ticket] = weakref.ref(whole, self._clear(ticket))
        return whole.data.toreadonly()

    def offset(self, view: memoryview) -> int:
        """Where in the arena ``view`` begins, which is of this reader."""
        return _address(view) - self._address

    def _clear(self, ticket: int) -> Callable[[weakref.ref[NDArray[Any]]], None]:
        flags, held = self._flags, self._held

        def clear(_: weakref.ref[NDArray[Any]]) -> None:
            # the flag last: from then on the owner may send another block with the same ticket
            held.pop(ticket, None)
            flags[ticket] = 0

        return clear


def _address(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
