"""Memory that is received into: the system maps its pages one by one, as bytes arrive.

It clears a huge page, of 2 MiB, when the first byte arrives there: that takes 0.2 ms, and 6 ms in a virtual
machine whose host has not backed it yet. Small pages take twice as long for a whole body, but never long at
once. So a large body begins on small pages, and stays there while other clients send.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np

Allocate = Callable[[int], memoryview]
"""Gets memory of so many bytes to receive into. Raises ``MemoryError``."""

ALIGNMENT = 64
"""The alignment in bytes of a buffer's end, a line of the processor's cache."""

_ADVISED_BYTES = 4 << 20
"""From this size on, NumPy advises the system to use huge pages."""

_SMALL_BYTES = 4 << 20
"""How much of a body always has small pages: many bodies may begin at once."""

HUGE_PAGE_BYTES = 2 << 20
"""A smaller buffer has no huge page of its own."""

_NO_HUGE_PAGES = getattr(mmap, "MADV_NOHUGEPAGE", 0)
"""Linux alone has it; see madvise(2)."""

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)


def unfilled(size: int) -> memoryview:
    """A buffer that is not filled with zeros: that would cost as much as receiving into it. Raises
    ``MemoryError``."""
    buffer = np.empty(size, np.uint8).data
    if size >= _ADVISED_BYTES:
        use_small_pages(buffer[:_SMALL_BYTES])
    return buffer


def end_aligned(allocate: Allocate, size: int) -> memoryview:
    """A buffer of ``size`` bytes whose end is aligned: the contents of tensors end a message of protobuf, and
    engines copy what is not aligned. Raises ``MemoryError``."""
    room = allocate(size + ALIGNMENT - 1)
    begin = -(ctypes.addressof(ctypes.c_char.from_buffer(room)) + size) % ALIGNMENT
    return room[begin : begin + size]


def use_small_pages(buffer: memoryview) -> None:
    """Where ``buffer`` is not mapped yet, use small pages."""
    if not _NO_HUGE_PAGES:
        return
    address = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    # it fails on a system that has no huge pages
    _madvise(begin, max(0, address + len(buffer) - begin), _NO_HUGE_PAGES)
