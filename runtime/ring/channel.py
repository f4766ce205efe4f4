"""A channel between two processes: a ring and an arena in each direction, and doorbells.

A third process creates a channel and gives each end to its process. A socket, the lifeline, ends with either
of them. The records of one turn of the event loop are sent with one doorbell. An end that finds the ring full
keeps its records and tries again: the reader frees slots in each of its turns.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from interlingua.runtime.ring import memory
from interlingua.runtime.ring.arena import TICKETS, Arena, ArenaFile, ArenaReader, Extent
from interlingua.runtime.ring.lending import Borrower, Lender
from interlingua.runtime.ring.ring import RingReader, RingWriter, ring_bytes

SLOTS = 1024

_TURN_RECORDS = 64
"""How many records are read in one turn of the event loop."""

_FULL_SECS = 0.001
"""The interval of attempts while the ring is full."""

_TRIM_SECS = 10.0
"""How long large tensors may be gone at least until the kernel gets their memory."""

_ARENA = ring_bytes(SLOTS) + TICKETS
"""Where an arena begins in the memory of its direction."""

_log = logging.getLogger(__name__)


class Ends(NamedTuple):
    """The descriptors of one end: the memory of both directions, written and read ones, the doorbells to ring
    and to hear, and the lifeline."""

    written: int
    read: int
    ring: int
    hear: int
    lifeline: int


class _Half(NamedTuple):
    """The memory of one direction."""

    ring: mmap.mmap
    flags: mmap.mmap
    arena: mmap.mmap

    @classmethod
    def of(cls, descriptor: int) -> _Half:
        """Map it, and close ``descriptor``."""
        try:
            ring, size = ring_bytes(SLOTS), os.fstat(descriptor).st_size
            return cls(
                mmap.mmap(descriptor, ring),
                mmap.mmap(descriptor, TICKETS, offset=ring),
                mmap.mmap(descriptor, size - _ARENA, offset=_ARENA),
            )
        finally:
            os.close(descriptor)


def create(arena_bytes: int) -> tuple[Ends, Ends]:
    """A new channel, with ``arena_bytes`` of large tensors in flight in each direction at most. Raises
    ``OSError``."""
    size = _ARENA + arena_bytes
    one, other = (memory.create("channel", size) for _ in range(2))
    bells = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2)]
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return (
        Ends(one, other, bells[0], bells[1], here.detach()),
        Ends(os.dup(other), os.dup(one), os.dup(bells[1]), os.dup(bells[0]), there.detach()),
    )


class Channel:
    """One end, which owns the descriptors ``ends``. Calls ``receive`` with every record, oldest first, and
    ``lost`` once after the other process has closed its end, has exited, or has written an invalid record.
    Records are ``waiting`` for a free slot. Use on one event loop. Raises ``OSError``."""

    def __init__(self, ends: Ends, receive: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._receive = receive
        self._lost = lost
        self._lifeline = socket.socket(fileno=ends.lifeline)
        self._lifeline.setblocking(False)
        self._ring, self._hear = ends.ring, ends.hear
        file = ArenaFile(os.dup(ends.read), _ARENA)
        written, read = (_Half.of(descriptor) for descriptor in (ends.written, ends.read))
        self._writer = RingWriter(written.ring)
        self._reader = RingReader(read.ring)
        self.arena = Arena(written.arena, written.flags)
        self._arena_reader = ArenaReader(read.arena, read.flags, file)
        self._lender = Lender(self._lifeline, self.arena)
        self._borrower = Borrower(self._lifeline)
        self.waiting: deque[bytes] = deque()
        self._bell: asyncio.Handle | None = None
        self._open = True
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._hear, self._on_doorbell)
        self._loop.add_reader(self._lifeline.fileno(), self._live)
        self._trimming = self._loop.call_later(_TRIM_SECS, self._trim)

    def send(self, record: bytes) -> None:
        """Send a marshalled ``record``, ``SLOT_BYTES`` at most. Records keep their order."""
        if self.waiting or not self._writer.put(record):
            self.waiting.append(record)
        if self._bell is None:
            self._bell = self._loop.call_soon(self._flush)

    def place(self, data: memoryview) -> Sequence[int] | None:
        """The place of ``data`` for one record: its own if it is in the arena, or in a file that the reader
        can map, else that of a copy; None if there is no space."""
        place = self.arena.send(data) or self._lender.lend(data)
        if place is not None:
            return place
        block = self.arena.allocate(len(data))
        if block is None:
            return None
        block[:] = data
        return self.arena.send(block)

    def view(self, place: Sequence[int]) -> memoryview:
        """The bytes at the ``place`` of a record, read-only. Raises ``ValueError`` if there are none."""
        memory = self._borrower.memory(place[3]) if len(place) > 3 else None
        return self._arena_reader.view(Extent(*place[:3]), memory)

    def close(self) -> None:
        """Send nothing more. The other end is notified; views of received data stay."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._hear)
        self._loop.remove_reader(self._lifeline.fileno())
        if self._bell is not None:
            self._bell.cancel()
        # the memory is unmapped with the last reference: cycles would keep it
        self._receive = self._lost = ignore
        self._trimming.cancel()
        self._lender.close()
        self._borrower.close()
        self._lifeline.close()
        os.close(self._ring)
        os.close(self._hear)

    def _flush(self) -> None:
        self._bell = None
        if not self._open:
            return
        waiting = self.waiting
        while waiting and self._writer.put(waiting[0]):
            waiting.popleft()
        if waiting:
            self._bell = self._loop.call_later(_FULL_SECS, self._flush)
        os.eventfd_write(self._ring, 1)

    def _settle(self) -> None:
        self._lender.settle()

    def _trim(self) -> None:
        self._settle()
        self.arena.trim()
        self._trimming = self._loop.call_later(_TRIM_SECS, self._trim)

    def _on_doorbell(self) -> None:
        # the read also orders memory: slots are read after the counter of the bell
        os.eventfd_read(self._hear)
        self._take()

    def _take(self) -> None:
        """Read records for one turn."""
        if not self._open:
            return
        if self._read_some() == _TURN_RECORDS:
            self._loop.call_soon(self._take)

    def _read_some(self) -> int:
        if self._lender.lent or self._lender.gone:
            self._settle()
        try:
            records = self._reader.take(_TURN_RECORDS)
            for record in records:
                self._receive(record)
        except ValueError as error:
            _log.error("channel memory damaged", extra={"facts": {"reason": str(error)}})
            self._lose()
            return 0
        return len(records)

    def _live(self) -> None:
        """Something has come over the lifeline, or it has ended."""
        if self._borrower.receive():
            return
        # records from before the end count
        while self._open and self._read_some():
            continue
        self._lose()

    def _lose(self) -> None:
        if self._open:
            lost = self._lost
            self.close()
            lost()


def ignore(*_: object) -> None:
    """Replaces what is called while a channel is open: bound methods and closures would be cycles."""
