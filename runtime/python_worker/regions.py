"""Shared memory between two processes: one writes tensors to it, the other reads them in place.

The writer owns a :class:`RegionPool`. A region is an anonymous file in memory; its descriptor goes to the
reader when the region is first used. A region is in use from :meth:`RegionPool.place` until the last view of
the reader's :class:`RegionViews` is gone, which the reader reports by one byte in a page of flags: returning
memory takes no message. A region that is too small is replaced, so a pool holds as many regions as were ever
in use at once, each of the largest size needed.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.ring.lending import SharedView
from interlingua.runtime.ring.memory import SharedFile

ALIGNMENT = 64
"""The alignment of tensors, for vector instructions."""

MAX_REGIONS = mmap.PAGESIZE
"""One byte of flags for each."""

_SMALLEST = 1 << 16


class Vacant:
    """Space for bytes that the reader itself writes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


Part = memoryview | bytes | Vacant


def make_page() -> int:
    return _memory("flags", mmap.PAGESIZE)


def map_page(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, mmap.PAGESIZE)


def offsets(parts: Sequence[Part]) -> tuple[list[int], int]:
    """The start of each of ``parts``, one after the other, and their total size."""
    starts = []
    end = 0
    for part in parts:
        starts.append(end)
        end += -(-len(part) // ALIGNMENT) * ALIGNMENT
    return starts, end


class RegionPool:
    """The writer's side. ``flags`` is the page shared with the reader; one thread at a time."""

    def __init__(self, flags: mmap.mmap) -> None:
        self._flags = flags
        self._regions: list[mmap.mmap] = []

    def place(self, parts: Sequence[Part]) -> tuple[int, list[int], int | None]:
        """Copy ``parts`` to a free region. Returns its number, the start of each part, and the region's
        descriptor if the reader does not have it yet, to be closed after it is sent. Raises ``MemoryError``
        for too many regions, which means that the reader keeps its views."""
        starts, size = offsets(parts)
        number, descriptor = self._free(size)
        region = self._regions[number]
        self._flags[number] = 1
        for start, part in zip(starts, parts, strict=True):
            if not isinstance(part, Vacant):
                region[start : start + len(part)] = part
        return number, starts, descriptor

    def close(self) -> None:
        """Free the regions and the flags; mappings of the reader stay."""
        for region in self._regions:
            region.close()
        self._regions.clear()
        self._flags.close()

    def _free(self, size: int) -> tuple[int, int | None]:
        free = [number for number in range(len(self._regions)) if not self._flags[number]]
        fitting = [number for number in free if len(self._regions[number]) >= size]
        if fitting:
            # the smallest, which leaves the big ones to big tensors
            return min(fitting, key=lambda number: len(self._regions[number])), None
        capacity = max(_SMALLEST, 1 << (size - 1).bit_length())
        descriptor = _memory("tensors", capacity)
        region = mmap.mmap(descriptor, capacity)
        if free:
            number = max(free, key=lambda number: len(self._regions[number]))
            self._regions[number].close()
            self._regions[number] = region
            return number, descriptor
        if len(self._regions) == MAX_REGIONS:
            os.close(descriptor)
            region.close()
            raise MemoryError(f"{MAX_REGIONS} blocks of shared memory are in use at once")
        self._regions.append(region)
        return len(self._regions) - 1, descriptor


class RegionViews:
    """The reader's side: regions by number, and their views."""

    def __init__(self, flags: mmap.mmap) -> None:
        self._flags = flags
        self._regions: dict[int, tuple[mmap.mmap, SharedFile]] = {}
        self._watched: dict[int, weakref.ref[NDArray[Any]]] = {}

    def add(self, number: int, descriptor: int) -> None:
        """Map region ``number``, replacing the earlier one; owns ``descriptor``. Raises ``OSError``."""
        file = SharedFile(descriptor)
        self._regions[number] = mmap.mmap(descriptor, 0), file

    def view(self, number: int) -> memoryview:
        """Region ``number``, writable. It is free again when this view and all slices of it are gone."""
        memory, file = self._regions[number]
        whole = np.frombuffer(memory, np.uint8).view(SharedView)
        whole.file = file
        # one view at a time: the writer places nothing more until this one is gone
        self._watched[number] = weakref.ref(whole, self._freed(number))
        return whole.data

    def close(self) -> None:
        """Free the regions without views, and the flags if there are no others; those are freed with their
        views."""
        for number, (memory, _) in self._regions.items():
            if not self._is_watched(number):
                memory.close()
        self._regions.clear()
        if not any(map(self._is_watched, self._watched)):
            self._flags.close()

    def _is_watched(self, number: int) -> bool:
        watched = self._watched.get(number)
        return watched is not None and watched() is not None

    def _freed(self, number: int) -> Callable[[weakref.ref[NDArray[Any]]], None]:
        flags = self._flags

        def free(_: weakref.ref[NDArray[Any]]) -> None:
            flags[number] = 0

        return free


def _memory(name: str, size: int) -> int:
    descriptor = os.memfd_create(f"interlingua-{name}", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size)
    return descriptor
