"""Which elements of two packed BYTES tensors differ, without unpacking either."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

import numpy as np

_LENGTH = struct.Struct("<I")

_PIECE = 1 << 18
"""Bytes compared at a time."""

_SMALL = 4096
"""Elements up to this size are compared as copies, which is faster than creating an array."""

_BREATH = 1024
"""Elements compared before yielding the GIL to other threads."""


@dataclass(frozen=True, slots=True)
class Elements:
    """``different`` elements differ. The first of them has index ``first`` and ``lengths`` on the two sides,
    and differs at ``byte``, the length of the shorter one if that is a prefix."""

    different: int = 0
    first: int = 0
    byte: int = 0
    lengths: tuple[int, int] = (0, 0)


def walk(right: memoryview, other: memoryview) -> Elements:
    """Compare two well-formed tensors with equal numbers of elements."""
    if len(right) == len(other) and first_difference(right, other) is None:
        return Elements()
    number = different = 0
    first: tuple[int, memoryview, memoryview] | None = None
    here = there = 0
    while here < len(right):
        start, begin = here + 4, there + 4
        here = start + _LENGTH.unpack_from(right, here)[0]
        there = begin + _LENGTH.unpack_from(other, there)[0]
        one, another = right[start:here], other[begin:there]
        if not _same(one, another):
            different += 1
            if first is None:
                first = number, one, another
        number += 1
        if number % _BREATH == 0:
            time.sleep(0)
    if first is None:
        return Elements()
    number, one, another = first
    shorter = min(len(one), len(another))
    byte = first_difference(one[:shorter], another[:shorter])
    return Elements(different, number, shorter if byte is None else byte, (len(one), len(another)))


def first_difference(right: memoryview, other: memoryview) -> int | None:
    """The index at which two views of equal length first differ; None if they are equal."""
    one, another = np.frombuffer(right, np.uint8), np.frombuffer(other, np.uint8)
    for start in range(0, one.size, _PIECE):
        wrong = one[start : start + _PIECE] != another[start : start + _PIECE]
        if wrong.any():
            return start + int(wrong.argmax())
    return None


def _same(one: memoryview, another: memoryview) -> bool:
    if len(one) != len(another):
        return False
    if len(one) <= _SMALL:
        return bytes(one) == bytes(another)
    return first_difference(one, another) is None
