"""Messages of FP32 and FP64 tensors, whose numbers are on the wire as they are: all else in them repeats.

What precedes each tensor's data depends on the model, names and shapes alone, and is written and parsed once.
The caches are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from interlingua.protocols.grps.message import DTYPES, OK, GenericTensor, GrpsMessage, Kind, Status
from interlingua.protocols.protobuf_wire import LENGTH_DELIMITED, interleaved, varint
from interlingua.protocols.wire import Buffer
from interlingua.schemas.grps import MESSAGES

_MOST = 256
_LONGEST = 4096
"""How many forms are kept, and the length of the longest one."""

_TENSOR_LENGTH = 8
"""What a tensor adds to the length of a message without data, besides name and shape."""

_LARGE_BYTES = 1 << 28
"""Messages with more of tensors may be beyond the limit."""

_MESSAGE: Any = MESSAGES["grps.protos.v1.GrpsMessage"]
_TENSOR: Any = MESSAGES["grps.protos.v1.GenericTensor"]
_GTENSORS_TAG = varint(_MESSAGE.GTENSORS_FIELD_NUMBER << 3 | LENGTH_DELIMITED)
_TENSORS_TAG = varint(1 << 3 | LENGTH_DELIMITED)

_Described = tuple[str, int, tuple[int, ...], int]
"""A tensor's name, datatype, shape and size in bytes."""


class _Known(NamedTuple):
    model: str
    status: Status | None
    tensors: tuple[_Described, ...]
    leads: tuple[bytes, ...]


_KNOWN: dict[int, _Known] = {}
"""The last message of each size."""


def write(message: GrpsMessage) -> bytes | None:
    """``message`` on the wire; None unless all its tensors are floats. Raises ``ValueError`` for text that is
    not Unicode."""
    described = _described(message)
    if described is None:
        return None
    leads = _leads(message.model, message.status is not None, described)
    return b"".join(interleaved(leads, [_octets(tensor) for tensor in message.tensors]))


def read(view: memoryview) -> GrpsMessage | None:
    """The message in ``view`` if it differs from a known one in its numbers alone."""
    known = _KNOWN.get(len(view))
    if known is None:
        return None
    tensors = []
    for (name, dtype, shape, _), (start, lead, stop) in zip(known.tensors, _places(known), strict=True):
        if view[start - len(lead) : start] != lead:
            return None
        tensors.append(GenericTensor(name, dtype, shape, np.frombuffer(view[start:stop], DTYPES[dtype].wire)))
    return GrpsMessage(Kind.GTENSORS, known.model, known.status, tensors=tuple(tensors))


def remember(message: GrpsMessage, view: memoryview) -> None:
    """Cache the form of ``message``, which was read from ``view``, if the wire has it as :func:`write`
    does."""
    described = _described(message)
    if described is None:
        return
    leads = _leads(message.model, message.status is not None, described)
    known = _Known(message.model, message.status, described, leads)
    places = tuple(_places(known))
    if places[-1][2] != len(view) or any(
        view[start - len(lead) : start] != lead for start, lead, _ in places
    ):
        return
    if len(_KNOWN) >= _MOST:
        del _KNOWN[next(iter(_KNOWN))]
    _KNOWN[len(view)] = known


def _places(known: _Known) -> Iterator[tuple[int, bytes, int]]:
    """Where the data of each tensor start, what precedes them, and where they end."""
    position = 0
    for lead, (_, _, _, size) in zip(known.leads, known.tensors, strict=True):
        start = position + len(lead)
        position = start + size
        yield start, lead, position


def _described(message: GrpsMessage) -> tuple[_Described, ...] | None:
    """The tensors without their data; None unless all are floats, or if it is long without data."""
    if message.kind is not Kind.GTENSORS or not (message.status is None or message.status == OK):
        return None
    described: list[_Described] = []
    length, size = len(message.model), 0
    for tensor in message.tensors:
        flat, dtype = tensor.flat, DTYPES.get(tensor.dtype)
        wire = None if dtype is None else dtype.wire
        if wire is None or wire.kind != "f" or not isinstance(flat, np.ndarray) or flat.dtype != wire:
            return None
        nbytes = flat.nbytes
        size += nbytes
        if not nbytes or size > _LARGE_BYTES:
            return None
        described.append((tensor.name, tensor.dtype, tensor.shape, nbytes))
        length += _TENSOR_LENGTH + len(tensor.name) + len(tensor.shape)
    return tuple(described) if described and length <= _LONGEST else None


@lru_cache(_MOST)
def _leads(model: str, ok: bool, tensors: Sequence[_Described]) -> tuple[bytes, ...]:
    """What precedes the data of each of ``tensors``."""
    heads: list[bytes] = []
    size = 0
    for name, dtype, shape, nbytes in tensors:
        head: bytes = _TENSOR(name=name, dtype=dtype, shape=shape).SerializeToString()
        head += varint(DTYPES[dtype].field_number << 3 | LENGTH_DELIMITED) + varint(nbytes)
        heads.append(_TENSORS_TAG + varint(len(head) + nbytes) + head)
        size += len(heads[-1]) + nbytes
    before = _MESSAGE(model=model)
    if ok:
        before.status.code, before.status.msg, before.status.status = OK.code, OK.msg, OK.flag
    heads[0] = before.SerializeToString() + _GTENSORS_TAG + varint(size) + heads[0]
    return tuple(heads)


def _octets(tensor: GenericTensor) -> Buffer:
    return np.ascontiguousarray(tensor.flat).view(np.uint8).data
