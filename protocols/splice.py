"""How one message is made of another: of constant bytes, and of contents that move from one to the other.

Dialects that carry tensors as they are in memory differ in what they put around them. Where that is
constant, a translation is a splice: found once, by translating contents that number their own bytes, then
applied without a codec. So it is with the id of a request, whose characters are all different while a splice
is looked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from interlingua.protocols.templates import ID_BYTES, Place, is_id
from interlingua.protocols.wire import Buffer
from interlingua.schemas import InferenceError

_MOST_PIECES = 16
_MOST_BYTES = 1 << 16
"""Two bytes number the bytes of contents."""
_MOST_TRIED = 8
"""How many places with the bytes of an id are tried."""

_IDS = [np.frombuffer(ID_BYTES[shift:] + ID_BYTES[:shift], np.uint8) for shift in (0, 22, 43)]
"""Three ids that number their characters: none has the same ones twice."""

_NUMBERS = np.zeros(256, np.int64)
_NUMBERS[_IDS[0]] = np.arange(len(ID_BYTES))
"""The number of a character in the first of them."""


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


def find_splice(
    message: Buffer, slots: Sequence[Place], make: Callable[[bytes], bytes | None], ids: Sequence[Place] = ()
) -> Splice | None:
    """How ``make`` makes a message of one that differs from ``message`` in the contents of ``slots`` alone,
    which are in order, and in the id, which is in each of ``ids``; None if it does anything but move them, or
    returns None for one."""
    offsets = np.concatenate([np.arange(start, stop) for start, stop in slots])
    if len(offsets) > _MOST_BYTES or (np.diff(offsets) < 1).any():
        return None
    numbers, length = np.arange(len(offsets)), ids[0][1] - ids[0][0] if ids else 0
    low, high = numbers.astype(np.uint8), (numbers >> 8).astype(np.uint8)
    names = [each[:length] for each in _IDS]
    filled = zip((low, ~low, high), names, strict=True)
    made = [make(_filled(message, offsets, contents, ids, name)) for contents, name in filled]
    first, inverse, second = [np.frombuffer(each or b"", np.uint8) for each in made]
    if not len(first) or not len(first) == len(inverse) == len(second):
        return None
    moved = first != inverse
    if not moved.any() or (first != second)[~moved].any():
        return None
    # no character of an id is the inverse of another one
    contents, source = (first ^ inverse) == 0xFF, np.zeros(len(first), np.int64)
    found = (first.astype(np.int64) | second.astype(np.int64) << 8)[contents]
    if len(found) and found.max() >= len(offsets):
        return None
    source[contents] = offsets[found]
    named = moved & ~contents
    if named.any():
        at = _NUMBERS[first[named]]
        if not length or at.max() >= length:
            return None
        if any(
            (each[named] != name[at]).any()
            for each, name in zip((first, inverse, second), names, strict=True)
        ):
            return None
        source[named] = ids[0][0] + at
    splice = _splice(first.tobytes(), np.flatnonzero(moved), source[moved])
    noise, characters = np.frombuffer(os.urandom(len(offsets)), np.uint8), np.frombuffer(ID_BYTES, np.uint8)
    for each in (np.frombuffer(message, np.uint8)[offsets], noise, 0, 255):
        name = characters[np.frombuffer(os.urandom(length), np.uint8) % len(characters)]
        example = _filled(message, offsets, each, ids, name)
        if splice is None or splice.of(example) != make(example):
            return None
    return splice


def find_id(
    message: Buffer, slots: Sequence[Place], identity: str, read: Callable[[bytes], str]
) -> Place | None:
    """Where ``message``, with contents in ``slots``, has its id, which ``read`` reads of one like it; None if
    that is no slot. What ``read`` raises as an ``InferenceError`` is no message."""
    wanted, whole = identity.encode(errors="replace"), bytes(message)
    if is_id(wanted) is None:
        return None
    other = next(
        each
        for each in (_IDS[1][: len(wanted)].tobytes(), _IDS[2][: len(wanted)].tobytes())
        if each != wanted
    )
    start = whole.find(wanted)
    for _ in range(_MOST_TRIED):
        stop = start + len(wanted)
        if start < 0:
            return None
        if all(stop <= begin or start >= end for begin, end in slots):
            with suppress(InferenceError):
                if read(whole[:start] + other + whole[stop:]) == other.decode():
                    return start, stop
        start = whole.find(wanted, start + 1)
    return None


def _filled(message: Buffer, offsets: Any, contents: Any, ids: Sequence[Place], name: Any) -> bytes:
    """A copy of ``message`` with the bytes ``contents`` at ``offsets``, and ``name`` as its id."""
    copy = np.frombuffer(message, np.uint8).copy()
    copy[offsets] = contents
    for start, stop in ids:
        copy[start:stop] = name
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
