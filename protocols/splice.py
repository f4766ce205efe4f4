"""How one message is made of another: of constant bytes, and of contents that move from one to the other.

Dialects that carry tensors as they are in memory differ in what they put around them. Where that is
constant, a translation is a splice: found once, by translating contents that number their own bytes, then
applied without a codec.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from interlingua.protocols.wire import Buffer

_MOST_PIECES = 16
_MOST_BYTES = 1 << 16
"""Two bytes number the bytes of contents."""

Place = tuple[int, int]
"""Where contents begin and end in a message."""


class Splice(NamedTuple):
    """``pieces``: constant bytes, each with the place of the contents that follow, and the ``tail``."""

    pieces: tuple[tuple[bytes, int, int], ...]
    tail: bytes

    def of(self, message: Buffer) -> bytes:
        """What ``message`` becomes."""
        parts: list[Buffer] = []
        for lead, start, stop in self.pieces:
            parts += lead, message[start:stop]
        parts.append(self.tail)
        return b"".join(parts)


def place_in(message: Buffer, contents: Buffer) -> Place | None:
    """Where ``contents``, a view of ``message``, are in it; None if they are not its memory, or empty."""
    start = _address(contents) - _address(message)
    stop = start + len(contents)
    return (start, stop) if contents and start >= 0 and stop <= len(message) else None


def find_splice(
    message: Buffer, places: Sequence[Place], make: Callable[[bytes], bytes | None]
) -> Splice | None:
    """How ``make`` makes a message of one that differs from ``message`` in the contents of ``places`` alone,
    which are in order; None if it does anything but move them, or returns None for one."""
    offsets = np.concatenate([np.arange(start, stop) for start, stop in places])
    if len(offsets) > _MOST_BYTES or (np.diff(offsets) < 1).any():
        return None
    numbers = np.arange(len(offsets))
    low, high = numbers.astype(np.uint8), (numbers >> 8).astype(np.uint8)
    made = [make(_filled(message, offsets, contents)) for contents in (low, ~low, high)]
    first, inverse, second = [np.frombuffer(each or b"", np.uint8) for each in made]
    if not len(first) or not len(first) == len(inverse) == len(second):
        return None
    moved = first != inverse
    if (first ^ inverse)[moved].tobytes().strip(b"\xff") or (first != second)[~moved].any():
        return None
    found = first.astype(np.int64) | second.astype(np.int64) << 8
    if not moved.any() or found[moved].max() >= len(offsets):
        return None
    splice = _splice(first.tobytes(), np.flatnonzero(moved), offsets[found[moved]])
    noise = np.frombuffer(os.urandom(len(offsets)), np.uint8)
    for contents in (np.frombuffer(message, np.uint8)[offsets], noise, 0, 255):
        example = _filled(message, offsets, contents)
        if splice is None or splice.of(example) != make(example):
            return None
    return splice


def surroundings(message: Buffer, places: Sequence[Place]) -> tuple[tuple[int, int, bytes], ...]:
    """What ``message`` has around ``places``, which are in order: pieces, each with its place."""
    bounds = [0, *[end for place in places for end in place], len(message)]
    gaps = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple([(start, stop, bytes(message[start:stop])) for start, stop in gaps if start < stop])


def _filled(message: Buffer, offsets: Any, contents: Any) -> bytes:
    """A copy of ``message`` with the bytes ``contents`` at ``offsets``."""
    copy = np.frombuffer(message, np.uint8).copy()
    copy[offsets] = contents
    return copy.tobytes()


def _splice(made: bytes, at: Any, source: Any) -> Splice | None:
    """The splice that makes ``made`` with the bytes from ``source`` at the places ``at``."""
    breaks = np.flatnonzero((np.diff(at) != 1) | (np.diff(source) != 1)) + 1
    if len(breaks) >= _MOST_PIECES:
        return None
    pieces, end = [], 0
    for run, origin in zip(np.split(at, breaks), np.split(source, breaks), strict=True):
        pieces.append((made[end : run[0]], int(origin[0]), int(origin[-1]) + 1))
        end = int(run[-1]) + 1
    return Splice(tuple(pieces), made[end:])


def _address(data: Buffer) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0
