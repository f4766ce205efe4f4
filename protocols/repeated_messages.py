"""Recognizes protobuf messages that differ from a recent one in the contents of one field alone: tensors.

``protobuf_wire.split`` walks a message field by field to find these contents. A message of the same size with
the same bytes around them would be walked alike: no byte of the contents says where a field begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from interlingua.protocols.repeated import LONGEST, MOST
from interlingua.protocols.wire import ArrivingMessage, Buffer

T = TypeVar("T")

_MOST_CONTENTS = 8
_ALIKE = 4
"""How many messages of one size are kept: those of different models."""


class Repeated(NamedTuple, Generic[T]):
    """What messages repeat: ``pieces`` around their contents, each with its place, and the ``places`` of the
    contents. ``facts`` are what is known of them."""

    pieces: tuple[tuple[int, int, bytes], ...]
    places: tuple[tuple[int, int], ...]
    facts: T

    def contents(self, message: Buffer | ArrivingMessage) -> list[memoryview]:
        """The contents in ``message``, as views; those of one that has passed on are zeros, which take no
        memory unless they are read."""
        if isinstance(message, ArrivingMessage):
            return [np.zeros(stop - start, np.uint8).data for start, stop in self.places]
        view, found = memoryview(message), []
        for start, stop in self.places:  # a comprehension is a call
            found.append(view[start:stop])
        return found


class RepeatedMessages(Generic[T]):
    """Keeps the latest messages of each size. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[int, list[Repeated[T]]] = {}

    def find(self, message: Buffer | ArrivingMessage) -> Repeated[T] | None:
        """What ``message`` repeats, if it does."""
        for known in self._known.get(len(message), ()):
            for start, stop, piece in known.pieces:
                if bytes(message[start:stop]) != piece:
                    break
            else:
                return known
        return None

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
        alike = self._known.get(len(message))
        if alike is None:
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            alike = self._known[len(message)] = []
        alike.insert(0, Repeated(tuple(pieces), tuple(places), facts))
        del alike[_ALIKE:]


def _address(data: Buffer) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data
