"""A cache of what messages with one tensor of numbers have around its data: its name, datatype and shape, and
what else they say.

The bytes around the data determine how a message is read: no writer has an offset that leads into the data,
and a message with one has the bytes of no other writer around its data. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from interlingua.protocols.repeated import LONGEST, BySignature
from interlingua.schemas import Datatype, Signature, Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    """``before`` and ``after`` the data from ``start`` to ``stop``."""

    start: int
    stop: int
    before: bytes
    after: bytes
    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    rest: T


class KnownMessages(Generic[T]):
    """Keeps the latest message of each size, signature and ``key``, on which its reading may depend."""

    def __init__(self) -> None:
        self._known: BySignature[_Known[T]] = BySignature()

    def find(self, view: memoryview, signature: Signature, key: Hashable = None) -> tuple[Tensor, T] | None:
        """The tensor of the message ``view``, and the rest; None if it has to be read."""
        known = self._known.get(signature, (len(view), key))
        if known is None:
            return None
        start, stop = known.start, known.stop
        if bytes(view[:start]) != known.before or bytes(view[stop:]) != known.after:
            return None
        return Tensor(known.name, known.datatype, known.shape, view[start:stop]), known.rest

    def remember(
        self,
        view: memoryview,
        tensors: tuple[Tensor, ...],
        signature: Signature,
        rest: T,
        key: Hashable = None,
    ) -> None:
        """Cache that ``view`` was read as ``tensors`` and ``rest``, if they are one tensor of numbers. A BOOL
        is not: its contents are checked."""
        if len(tensors) != 1:
            return
        (tensor,) = tensors
        size = len(tensor.view)
        if not size or len(view) - size > LONGEST or tensor.datatype in (Datatype.BYTES, Datatype.BOOL):
            return
        start = _address(tensor.view) - _address(view)
        stop = start + size
        around = bytes(view[:start]), bytes(view[stop:])
        known = _Known(start, stop, *around, tensor.name, tensor.datatype, tensor.shape, rest)
        self._known.put(signature, (len(view), key), known)


def _address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data
