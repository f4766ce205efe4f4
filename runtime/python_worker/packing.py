"""Tensors in a message: small ones in its payload, big ones in shared memory.

In the JSON part a tensor is ``[name, datatype, shape, start, size]``. With the list of them come the number
of their region, -1 for the payload, and whether its descriptor is sent. Inputs in an arena (``arenas``) have
the number of the arena and the offset there as well, and space in the region for the copy; after the list
come the arenas that the reader does not have yet, whose descriptors follow that of the region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlingua.runtime.python_worker.arenas import ArenaMaps, Introduced, Place, SharedArenas
from interlingua.runtime.python_worker.channel import ChannelFrame
from interlingua.runtime.python_worker.regions import (
    ALIGNMENT,
    Part,
    RegionPool,
    RegionViews,
    Vacant,
    offsets,
)

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
        # vacant ones are larger
        small = [part for part in parts if not isinstance(part, Vacant)]
        if len(small) > 1:
            small = [each for part in small for each in (part, _PADDING[: -len(part) % ALIGNMENT])]
        payload = b"".join(small)
    else:
        region, starts, descriptor = pool.place(parts)
        descriptors = [] if descriptor is None else [descriptor]
        payload = b""
    listed = [
        [name, datatype, shape, start, len(part)]
        for (name, datatype, shape, part), start in zip(tensors, starts, strict=True)
    ]
    return Packed([region, bool(descriptors), listed], payload, descriptors)


def pack_inputs(tensors: Sequence[NamedPart], pool: RegionPool, arenas: SharedArenas) -> tuple[Packed, bool]:
    """The same for the inputs of a run. Returns also whether some stay in an arena, where they must be held
    until the worker has read them. Raises ``MemoryError`` and ``OSError``."""
    new: list[Introduced] = []
    places = [arenas.place(tensor[3], new) for tensor in tensors]
    if not any(places):
        return pack(tensors, pool), False
    listed, descriptors = arenas.introduce(new)
    try:
        packed = pack([_vacant(*each) for each in zip(tensors, places, strict=True)], pool)
    except (MemoryError, OSError):
        arenas.withdraw(new, descriptors)
        raise
    region, comes, rows = packed.value
    rows = [
        row if place is None else [*row[:-1], len(tensor[3]), *place]
        for row, tensor, place in zip(rows, tensors, places, strict=True)
    ]
    return Packed([region, comes, rows, listed], packed.payload, [*packed.descriptors, *descriptors]), True


def unpack(
    value: Sequence[Any], frame: ChannelFrame, views: RegionViews, maps: ArenaMaps | None = None
) -> list[tuple[str, str, list[int], memoryview]]:
    """The tensors of a message: name, datatype, shape and bytes of each. They are uncopied and writable,
    except for inputs in an arena: of those, strings are read-only, and others are copied to the region."""
    region, comes, listed, *arenas = value
    if comes:
        views.add(region, frame.descriptors[0])
    if maps is not None and arenas:
        for arena, descriptor in zip(arenas[0], frame.descriptors[comes:], strict=True):
            maps.add(arena, descriptor)
    if not listed:
        return []
    whole = memoryview(frame.payload) if region < 0 else views.view(region)
    found = []
    for name, kind, shape, start, size, *place in listed:
        data = whole[start : start + size]
        if maps is not None and place:
            source = maps.view(place, size)
            if kind == "BYTES":
                data = source
            else:
                data[:] = source
        found.append((name, kind, shape, data))
    return found


def _vacant(tensor: NamedPart, place: Place | None) -> NamedPart:
    """``tensor`` without the bytes that are at a place."""
    name, datatype, shape, part = tensor
    if place is None:
        return tensor
    return name, datatype, shape, b"" if datatype == "BYTES" else Vacant(len(part))
