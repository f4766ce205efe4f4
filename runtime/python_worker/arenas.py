"""Inputs that lie in the arena of a front end: the worker reads them there.

The runtime process sends the place of such a tensor, and holds it until the first response. The worker maps
the arena, read-only, when its descriptor comes, and copies the tensor to its region before the run begins:
the model may write to its inputs, and keep them. Strings become objects without that copy.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from interlingua.runtime.python_worker.regions import Part
from interlingua.runtime.ring.arena import ArenaFile, ArenaReader, Received

PLACE_BYTES = 1 << 16
"""Below this size a copy costs less than a place."""

_MOST_NEW = 8
"""How many arenas one message may introduce; tensors in further ones are copied."""

Place = tuple[int, int]
"""The number of an arena, and an offset."""

NewArena = tuple[int, int, int]
"""The number of an arena, its start in the file whose descriptor comes with it, and its size."""


class Introduced(NamedTuple):
    """An arena that a message introduces."""

    number: int
    reader: ArenaReader
    file: ArenaFile


class SharedArenas:
    """The runtime's side: the arenas that the worker has. ``gone`` is called, in any thread, with the number
    of one that has ended."""

    def __init__(self, gone: Callable[[int], object]) -> None:
        self._gone = gone
        self._numbers: dict[weakref.ref[ArenaReader], int] = {}
        self._count = count()

    def place(self, part: Part, new: list[Introduced]) -> Place | None:
        """Where ``part`` lies; None if it is to be copied. Adds its arena to ``new`` if the worker does not
        have it yet."""
        if len(part) < PLACE_BYTES or not isinstance(part, memoryview) or not part.c_contiguous:
            return None
        whole = part.obj
        reader = whole.reader if isinstance(whole, Received) else None
        if reader is None or reader.file is None:
            return None
        number = self._numbers.get(weakref.ref(reader))
        if number is None:
            if len(new) == _MOST_NEW:
                return None
            number = next(self._count)
            self._numbers[weakref.ref(reader, self._ended)] = number
            new.append(Introduced(number, reader, reader.file))
        return number, reader.offset(part)

    def introduce(self, new: Sequence[Introduced]) -> tuple[list[NewArena], list[int]]:
        """What a message states of ``new`` arenas, and their descriptors, to be closed after it is sent.
        Raises ``OSError``."""
        descriptors: list[int] = []
        try:
            descriptors.extend(os.dup(each.file.descriptor) for each in new)
        except OSError:
            self.withdraw(new, descriptors)
            raise
        return [(number, file.start, reader.size) for number, reader, file in new], descriptors

    def withdraw(self, new: Sequence[Introduced], descriptors: Sequence[int]) -> None:
        """The message with ``new`` arenas is not sent."""
        for each in new:
            self._numbers.pop(weakref.ref(each.reader), None)
        for descriptor in descriptors:
            os.close(descriptor)

    def _ended(self, reader: weakref.ref[ArenaReader]) -> None:
        number = self._numbers.pop(reader, None)
        if number is not None:
            self._gone(number)


class ArenaMaps:
    """The worker's side."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}

    def add(self, arena: NewArena, descriptor: int) -> None:
        """Map an arena; closes ``descriptor``. Raises ``OSError``."""
        number, start, size = arena
        try:
            self._maps[number] = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, offset=start)
        finally:
            os.close(descriptor)

    def view(self, place: Sequence[int], size: int) -> memoryview:
        """The ``size`` bytes at ``place``."""
        number, offset = place
        return memoryview(self._maps[number])[offset : offset + size]

    def forget(self, number: int) -> None:
        """Unmap an arena, of which no run that is not over has a tensor."""
        del self._maps[number]
