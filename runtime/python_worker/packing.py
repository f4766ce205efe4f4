"""Tensors in a message: small ones in its payload, big ones in shared memory.

In the JSON part a tensor is ``[name, datatype, shape, start, size]``. With the list of them come the number
of their region, -1 for the payload, and whether its descriptor is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlingua.runtime.python_worker.channel import ChannelFrame
from interlingua.runtime.python_worker.regions import ALIGNMENT, Part, RegionPool, RegionViews, offsets

INLINE_BYTES = 1 << 14
"""Up to this size a copy through the socket costs less than a region."""

_PADDING = bytes(ALIGNMENT)


class Packed(NamedTuple):
    """Packed tensors: the value for the JSON part, the payload, and descriptors to send and then close."""

    value: list[Any]
    payload: bytes
    descriptors: list[int]


NamedPart = tuple[str, str, Sequence[int], Part]
"""The name, datatype, shape and bytes of a tensor."""


def pack(tensors: Sequence[NamedPart], pool: RegionPool) -> Packed:
    """Put tensors into a message. Raises ``MemoryError`` as :meth:`RegionPool.place`."""
    parts = [tensor[3] for tensor in tensors]
    if sum(map(len, parts)) <= INLINE_BYTES:
        region, descriptors = -1, []
        starts, _ = offsets(parts)
        if len(parts) > 1:
            parts = [each for part in parts for each in (part, _PADDING[: -len(part) % ALIGNMENT])]
        payload = b"".join(parts)
    else:
        region, starts, descriptor = pool.place(parts)
        descriptors = [] if descriptor is None else [descriptor]
        payload = b""
    listed = [
        [name, datatype, shape, start, len(part)]
        for (name, datatype, shape, part), start in zip(tensors, starts, strict=True)
    ]
    return Packed([region, bool(descriptors), listed], payload, descriptors)


def unpack(
    value: Sequence[Any], frame: ChannelFrame, views: RegionViews
) -> list[tuple[str, str, list[int], memoryview]]:
    """The tensors of a message, uncopied and writable: name, datatype, shape and bytes of each."""
    region, comes, listed = value
    if comes:
        views.add(region, frame.descriptors[0])
    if not listed:
        return []
    whole = memoryview(frame.payload) if region < 0 else views.view(region)
    return [(name, kind, shape, whole[start : start + size]) for name, kind, shape, start, size in listed]
