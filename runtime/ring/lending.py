"""Tensors in memory of a third process: the reader maps it, so that they are not copied to the arena.

Outputs of Python models lie in such memory. A channel sends the descriptor of a file once, over its lifeline;
the places of tensors then have the number of the file. The sender holds what it has lent until the reader has
cleared the flag of the message, as for a block of the arena.
"""

from __future__ import annotations

import mmap
import os
import socket
import weakref
from collections import deque
from struct import Struct

import numpy as np

from interlingua.runtime.ring.arena import Arena, address
from interlingua.runtime.ring.memory import SharedFile

LEAST_BYTES = 1 << 16
"""A smaller tensor is copied: pages of other memory cost more than that."""

MOST_BYTES = 64 << 20
"""How much may be lent: a client that reads slowly must not keep all memory of a model's process."""

_NUMBER = Struct("<Q")
"""A message of the lifeline: the number of a file, with its descriptor, or without it when it is gone."""


class SharedView(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """The bytes of ``file`` in memory, which views of tensors refer to."""

    file: SharedFile | None = None


class Lender:
    """The sender's side, with the flags of ``arena``. Use in one thread; files may end in any."""

    def __init__(self, lifeline: socket.socket, arena: Arena) -> None:
        self._lifeline = lifeline
        self._arena = arena
        self._numbers: dict[weakref.ref[SharedFile], int] = {}
        self._number = 0
        self._bytes = 0
        self.lent: dict[int, memoryview] = {}
        self.gone: deque[int] = deque()

    def lend(self, data: memoryview) -> tuple[int, int, int, int] | None:
        """The place of ``data`` for one message: that of an extent, and the number of the file. None if it is
        to be copied."""
        whole: object = data.obj
        size = len(data)
        if not isinstance(whole, SharedView) or whole.file is None or size < LEAST_BYTES:
            return None
        if self._bytes + size > MOST_BYTES:
            return None
        number = self._numbers.get(weakref.ref(whole.file)) or self._introduce(whole.file)
        ticket = self._arena.ticket() if number else None
        if not number or ticket is None:
            return None
        self._bytes += size
        self.lent[ticket] = data
        return ticket, address(data) - address(whole.data), size, number

    def settle(self) -> None:
        """Release what the reader has no view of any more, and report files that are gone."""
        for ticket in [ticket for ticket in self.lent if self._arena.is_clear(ticket)]:
            self._bytes -= len(self.lent.pop(ticket))
            self._arena.put_back(ticket)
        while self.gone:
            try:
                self._lifeline.send(_NUMBER.pack(self.gone[0]))
            except BlockingIOError:
                return  # later
            except OSError:
                self.gone.clear()  # the reader is gone, too
                return
            self.gone.popleft()

    def close(self) -> None:
        """Release everything."""
        self.lent.clear()
        self._numbers.clear()

    def _introduce(self, file: SharedFile) -> int:
        """The number of a file that the reader gets now; 0 if it cannot."""
        self._number = number = self._number + 1
        try:
            socket.send_fds(self._lifeline, [_NUMBER.pack(number)], [file.descriptor])
        except OSError:
            return 0
        numbers, gone = self._numbers, self.gone

        def ended(reference: weakref.ref[SharedFile]) -> None:
            if numbers.pop(reference, None) is not None:
                gone.append(number)

        numbers[weakref.ref(file, ended)] = number
        return number


class Borrower:
    """The reader's side: the files that the other process has introduced, by number."""

    def __init__(self, lifeline: socket.socket) -> None:
        self._lifeline = lifeline
        self.maps: dict[int, mmap.mmap] = {}

    def memory(self, number: int) -> mmap.mmap:
        """The file with that number, read-only. Raises ``ValueError`` if it was not introduced."""
        if number not in self.maps:
            # its descriptor was sent before the record
            self.receive()
        try:
            return self.maps[number]
        except KeyError:
            raise ValueError(f"a message claims to be in file {number}, which has not come") from None

    def receive(self) -> bool:
        """Map and unmap files. Returns whether the other process is still there."""
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self._lifeline, _NUMBER.size, 1)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not message:
                return False
            (number,) = _NUMBER.unpack(message)
            if not descriptors:
                self.maps.pop(number, None)
                continue
            try:
                self.maps[number] = mmap.mmap(descriptors[0], 0, access=mmap.ACCESS_READ)
            finally:
                os.close(descriptors[0])

    def close(self) -> None:
        """Unmap the files that have no views; the others are unmapped with their views."""
        self.maps.clear()
