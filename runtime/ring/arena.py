"""An arena of blocks for large tensors: one process allocates and fills blocks, another reads them in place.

Only the owner allocates. A block is free again when neither process has a view of it: the interpreter counts
views, so no message returns a block. Each time that the owner sends a block, it sets one flag in shared
memory, which the reader clears with its last view. When the owner needs space, it looks at the flags of
blocks whose views here are gone. It uses the lowest space that fits, because its pages are most likely in the
processor's cache. The pages of higher space go back to the kernel when it is no longer used.
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

PAGE_BYTES = 4096
"""Blocks consist of whole pages."""

TICKETS = 1 << 16
"""How often blocks may be sent and not be read; one byte of flags each."""

_LOOKED_AT = 8
"""How many blocks an allocation looks at: the reader may keep views of many."""


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
    """A block in use: its size, the array of its views in the owner, and the flags of its messages."""

    size: int
    block: weakref.ref[Block]
    tickets: list[int] = field(default_factory=list)


class Arena:
    """The owner's side of ``memory``; ``flags`` has ``TICKETS`` bytes. Use in one thread; views may end in
    any. ``used_bytes`` of ``size`` were in use when the owner last looked."""

    def __init__(self, memory: mmap.mmap, flags: mmap.mmap) -> None:
        self._memory = memory
        self._flags = memoryview(flags)
        self._address = address(memoryview(memory))
        self.size = len(memory)
        self._free = [(0, self.size)]
        self._used: dict[int, _Use] = {}
        self._ended: deque[int] = deque()
        self._tickets = deque(range(TICKETS))
        self._reached = self._written = 0
        self.used_bytes = 0

    def allocate(self, size: int, spare: int = 0) -> memoryview | None:
        """A writable view of ``size`` bytes, at least one, which hold old data; None without space for that
        and ``spare`` bytes more."""
        need = -(-size // PAGE_BYTES) * PAGE_BYTES
        if self._ended:
            self._reclaim(_LOOKED_AT)
        offset = self._extent(need, spare)
        if offset is None:
            self._reclaim(len(self._ended))
            offset = self._extent(need, spare)
            if offset is None:
                return None
        block = np.frombuffer(self._memory, np.uint8, size, offset).view(Block)
        block.arena, block.offset = self, offset
        ended = self._ended  # not a method: a cycle would keep the memory
        self._used[offset] = _Use(need, weakref.ref(block, lambda _: ended.append(offset)))
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
        ticket = self.ticket()
        if ticket is None:
            return None
        self._used[block.offset].tickets.append(ticket)
        return Extent(ticket, address(view) - self._address, len(view))

    def ticket(self) -> int | None:
        """A flag for one message, set; None if all are."""
        if not self._tickets:
            self._take_tickets()
            if not self._tickets:
                return None
        ticket = self._tickets.popleft()
        self._flags[ticket] = 1
        return ticket

    def is_clear(self, ticket: int) -> bool:
        """Whether the reader has no view of the message with ``ticket``."""
        return not self._flags[ticket]

    def put_back(self, ticket: int) -> None:
        """The message with ``ticket`` is in no block, and has no view."""
        self._tickets.append(ticket)

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
        self._reclaim(len(self._ended))
        for offset, size in self._free:
            begin, end = max(offset, reached), min(offset + size, written)
            begin = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
            end -= end % mmap.PAGESIZE
            if begin < end:
                # for both processes (madvise(2)); the next read there returns zeros
                self._memory.madvise(mmap.MADV_REMOVE, begin, end - begin)
        # blocks in use above keep their pages until a later call
        self._written = max([reached, *(offset + use.size for offset, use in self._used.items())])

    def _extent(self, need: int, spare: int) -> int | None:
        """Take ``need`` bytes out of the first free extent that has them, if ``spare`` more are free."""
        if self.used_bytes > self.size - need - spare:
            return None
        for index, (offset, size) in enumerate(self._free):
            if size >= need:
                if size == need:
                    del self._free[index]
                else:
                    self._free[index] = offset + need, size - need
                return offset
        return None

    def _reclaim(self, most: int) -> None:
        """Free up to ``most`` blocks, of those without views here, that the reader has no view of."""
        flags, ended = self._flags, self._ended
        for _ in range(min(most, len(ended))):
            offset = ended.popleft()
            use = self._used[offset]
            if any(map(flags.__getitem__, use.tickets)):
                ended.append(offset)
                continue
            del self._used[offset]
            self._tickets.extend(use.tickets)
            self.used_bytes -= use.size
            self._release(offset, use.size)

    def _take_tickets(self) -> None:
        """Take the tickets back whose views are gone."""
        flags = self._flags
        for use in self._used.values():
            self._tickets.extend([ticket for ticket in use.tickets if not flags[ticket]])
            use.tickets = [ticket for ticket in use.tickets if flags[ticket]]

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
    """The bytes at a place, which their views refer to. ``reader`` has the arena, if they are there."""

    reader: ArenaReader | None = None


class _Held(weakref.ref[Received]):
    """Refers to the array of the message with ``ticket``, while it has views."""

    __slots__ = ("ticket",)
    ticket: int


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
        self._address = address(memoryview(memory))
        self._flags = memoryview(flags)
        self._held: dict[int, _Held] = {}
        self._clear = _clearing(self._flags, self._held)

    def view(self, place: Extent, memory: mmap.mmap | None = None) -> memoryview:
        """The bytes at ``place``, or there in other ``memory``, read-only. Raises ``ValueError`` for a place
        outside."""
        ticket, offset, size = place
        end = self.size if memory is None else len(memory)
        if offset + size > end or ticket >= TICKETS:
            raise ValueError(f"a message claims {size} bytes at {offset} of memory of {end}")
        whole = Received(size, np.uint8, self._memory if memory is None else memory, offset)
        if memory is None:
            whole.reader = self
        self._held[ticket] = held = _Held(whole, self._clear)
        held.ticket = ticket
        return whole.data.toreadonly()

    def offset(self, view: memoryview) -> int:
        """Where in the arena ``view`` begins, which is of this reader."""
        return address(view) - self._address


def _clearing(flags: memoryview, held: dict[int, _Held]) -> Callable[[Any], None]:
    """Clears the flag of a message whose last view is gone."""

    def clear(gone: _Held) -> None:
        ticket = gone.ticket
        # the flag last: from then on the owner may send another block with the same ticket
        held.pop(ticket, None)
        flags[ticket] = 0

    return clear


def address(view: memoryview) -> int:
    """Where ``view`` begins in this process."""
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
