"""Recognizes protobuf messages that differ from a recent one in the contents of one field alone: tensors.

``protobuf_wire.split`` walks a message field by field to find these contents. A message of the same size with
the same bytes around them would be walked alike: no byte of the contents says where a field begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from interlingua.protocols.repeated import LONGEST, MOST
from interlingua.protocols.wire import Buffer

T = TypeVar("T")

_MOST_CONTENTS = 8
_BEGIN_BYTES = 24
"""As many bytes of a message find the one it repeats: the name of the model is among them. The contents
begin later."""


class Repeated(NamedTuple, Generic[T]):
    """What messages repeat: ``pieces`` around their contents, each with its place, and the ``places`` of the
    contents. ``facts`` are what is known of them."""

    pieces: tuple[tuple[int, int, bytes], ...]
    places: tuple[tuple[int, int], ...]
    facts: T

    def contents(self, message: Buffer) -> list[memoryview]:
        """The contents in ``message``, as views."""
        view = memoryview(message)
        return [view[start:stop] for start, stop in self.places]


class RepeatedMessages(Generic[T]):
    """Keeps the latest message of each size and beginning. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], Repeated[T]] = {}

    def find(self, message: Buffer) -> Repeated[T] | None:
        """What ``message`` repeats, if it does."""
        known = self._known.get((len(message), bytes(message[:_BEGIN_BYTES])))
        if known is None:
            return None
        for start, stop, piece in known.pieces:
            if bytes(message[start:stop]) != piece:
                return None
        return known

    def remember(self, message: Buffer, contents: Sequence[memoryview], facts: T) -> None:
        """Cache that ``message`` was split into ``contents``, views of it, and the rest, of which ``facts``
        are known: they must not depend on the bytes of the contents. Those of a usual message are few, and
        not empty."""
        rest = len(message) - sum(map(len, contents))
        if not 0 < len(contents) <= _MOST_CONTENTS or not all(map(len, contents)) or rest > LONGEST:
            return
        pieces, places, kept = [], [], 0
        first = _address(message)
        for each in contents:
            start = _address(each) - first
            pieces.append((kept, start, bytes(message[kept:start])))
            kept = start + len(each)
            places.append((start, kept))
        if kept < len(message):
            pieces.append((kept, len(message), bytes(message[kept:])))
        if places[0][0] < _BEGIN_BYTES:
            return
        if len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        key = len(message), bytes(message[:_BEGIN_BYTES])
        self._known[key] = Repeated(tuple(pieces), tuple(places), facts)


def _address(data: Buffer) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data
