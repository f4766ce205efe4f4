"""Reads GraphPipe's FlatBuffers: tables, strings and tensors out of untrusted bytes.

Every read is unaligned and checked. The schema does not nest, so no chain of offsets can loop. Offsets may
share bytes, so the size of an unfolded message is bounded. A failed check raises MALFORMED or INVALID_TENSOR;
a read outside the buffer may raise one of ``OUTSIDE``, which every caller turns into :func:`outside`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from interlingua.protocols.graphpipe.runs import copy_runs
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Datatype,
    InferenceError,
    Tensor,
    element_count,
    invalid_tensor,
    malformed,
    offload,
)
from interlingua.schemas.graphpipe import NULL, TYPES

OUTSIDE = (struct.error, IndexError)
"""Errors of struct and memoryview for a read beyond the end; no read starts before the beginning."""

MAX_RANK = 64
"""The most dimensions a tensor may have; NumPy's limit."""

MAX_UNFOLDING = 16
"""How many times its own size a message may unfold to if its strings share bytes."""

ALWAYS_UNFOLDED = 16 << 20
"""A vector of strings may always unfold to this many bytes: writers share equal strings."""

_FEW = 64
"""Up to this number, strings are read one by one, which is faster."""

_MANY = 1 << 12
"""Up to this number, strings are read on the event loop: in less than about 2 ms."""

_MOST_TABLES = 1 << 16
"""The most elements of a vector of tables or of names: no inference has more tensors."""

_BLOCK = 1 << 16
"""How many strings are read at a time."""

_Unpack = Callable[[memoryview, int], tuple[int, ...]]

_u16: _Unpack = struct.Struct("<H").unpack_from
_u32: _Unpack = struct.Struct("<I").unpack_from
_i32: _Unpack = struct.Struct("<i").unpack_from
_i64: _Unpack = struct.Struct("<q").unpack_from
_DIMENSIONS: list[_Unpack] = [struct.Struct(f"<{rank}q").unpack_from for rank in range(MAX_RANK + 1)]
_SLOTS: list[_Unpack] = [struct.Struct(f"<{count}H").unpack_from for count in range(7)]
_DATATYPES = {code: datatype for datatype, code in TYPES.items()}


def view_of(body: Buffer) -> memoryview:
    """``body`` as read-only bytes."""
    view = memoryview(body)
    if view.ndim != 1 or view.itemsize != 1:
        view = view.cast("B")
    return view.toreadonly()


def outside(view: memoryview) -> InferenceError:
    """The error for an offset or length that leaves the message."""
    return malformed(f"the GraphPipe message is cut short: it points outside of its {len(view)} bytes")


def root(view: memoryview) -> int:
    """The position of the root table."""
    if not view:
        raise malformed("the GraphPipe message is empty")
    return _u32(view, 0)[0]


def slots(view: memoryview, table: int, count: int) -> tuple[int, ...]:
    """The positions of the first ``count`` fields of ``table``, relative to it; 0 for an absent field."""
    vtable = table - _i32(view, table)[0]
    if vtable < 0:
        raise outside(view)
    known = (_u16(view, vtable)[0] - 4) // 2
    if known >= count:
        return _SLOTS[count](view, vtable + 4)
    # an older writer's vtable ends early
    known = max(known, 0)
    return _SLOTS[known](view, vtable + 4) + (0,) * (count - known)


def follow(view: memoryview, at: int) -> int:
    """The target of the offset at ``at``."""
    return at + _u32(view, at)[0]


def byte(view: memoryview, table: int, slot: int) -> int:
    """The ubyte field of ``table`` at ``slot``."""
    return view[table + slot] if slot else 0


def int64(view: memoryview, table: int, slot: int) -> int:
    """The int64 field of ``table`` at ``slot``."""
    return _i64(view, table + slot)[0] if slot else 0


def string(view: memoryview, table: int, slot: int) -> memoryview:
    """The bytes of a string or of a ubyte vector; absent is empty. No closing NUL is required."""
    if not slot:
        return view[:0]
    start, length = _vector(view, table + slot, 1)
    return view[start : start + length]


def offsets(view: memoryview, table: int, slot: int, most: int | None = None) -> list[int]:
    """The positions of the first ``most`` elements of a vector of tables or strings; absent is empty."""
    if not slot:
        return []
    start, count = _vector(view, table + slot, 4)
    count = count if most is None else min(count, most)
    if count > _MOST_TABLES:
        raise malformed(f"a vector of {count} tables; {_MOST_TABLES} is the most")
    if count == 1:
        return [start + _u32(view, start)[0]]
    relative = struct.unpack_from(f"<{count}I", view, start)
    return [at + offset for at, offset in zip(range(start, start + 4 * count, 4), relative, strict=True)]


def strings(view: memoryview, table: int, slot: int, prefix: int = 0, most: int | None = None) -> list[bytes]:
    """The first ``most`` elements of a vector of strings (some writers have byte vectors), each with the last
    ``prefix`` bytes, up to 4, of its length. Shared strings are free up to ``ALWAYS_UNFOLDED`` bytes in
    all."""
    if not slot:
        return []
    end = len(view)
    left = _room(view)
    found: list[bytes] = []
    for at in offsets(view, table, slot, most):
        start = at + 4
        stop = start + _u32(view, at)[0]
        if stop > end:
            raise outside(view)
        left -= stop - at
        if left < 0:
            raise unfolded(view)
        found.append(bytes(view[start - prefix : stop]))
    return found


def length(view: memoryview, table: int, slot: int) -> int:
    """The number of elements of a vector of tables or strings; absent is 0."""
    return _vector(view, table + slot, 4)[1] if slot else 0


def packed_strings(view: memoryview, table: int, slot: int) -> memoryview:
    """The elements of a vector of strings, each after its length, as on the wire. Unlike :func:`strings` it
    is fast for a million of them."""
    if not slot:
        return view[:0]
    start, count = _vector(view, table + slot, 4)
    if count <= _FEW:
        return memoryview(b"".join(strings(view, table, slot, prefix=4)))
    if count <= _MANY:
        return _packed(view, start, count)
    offload.require()
    offload.limits().check_elements(count, "a vector of strings")
    return offload.call(_packed, view, start, count)


def _packed(view: memoryview, start: int, count: int) -> memoryview:
    """The ``count`` strings whose offsets begin at ``start``, packed."""
    end = len(view)
    left = _room(view)
    source = np.frombuffer(view, np.uint8)
    # the number at each byte, unaligned
    numbers: NDArray[np.uint32] = np.ndarray((end - 3,), "<u4", view, strides=(1,))
    relative = np.frombuffer(view, "<u4", count, start)
    parts: list[Buffer] = []
    for first in range(0, count, _BLOCK):
        starts = relative[first : first + _BLOCK].astype(np.int64)
        starts += np.arange(start + 4 * first, start + 4 * (first + len(starts)), 4)
        if starts.max() > end - 4:
            raise outside(view)
        sizes = numbers[starts].astype(np.int64) + 4
        if (starts + sizes).max() > end:
            raise outside(view)
        ends = np.cumsum(sizes)
        left -= int(ends[-1])
        if left < 0:
            raise unfolded(view)
        part = np.empty(ends[-1], np.uint8)
        copy_runs(source, starts, part, ends - sizes, sizes)
        parts.append(part.data)
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


def dimensions(view: memoryview, table: int, slot: int, name: str) -> tuple[int, ...]:
    """The int64 elements of a shape; absent is empty."""
    if not slot:
        return ()
    at = follow(view, table + slot)
    rank = _u32(view, at)[0]
    if rank > MAX_RANK:
        raise invalid_tensor(f"tensor '{name}' claims {rank} dimensions; {MAX_RANK} is the most")
    return _DIMENSIONS[rank](view, at + 4)


def tensor(view: memoryview, table: int, name: str) -> Tensor:
    """The ``Tensor`` table at ``table`` as a tensor over the same bytes, called ``name``.

    Raises INVALID_TENSOR for the type Null or an unknown one, data that contradict type or shape.
    """
    type_slot, shape_slot, data_slot, strings_slot = slots(view, table, 4)
    shape = dimensions(view, table, shape_slot, name)
    data = string(view, table, data_slot)
    code = byte(view, table, type_slot)
    datatype = _DATATYPES.get(code)
    if datatype is Datatype.BYTES:
        if data:
            raise invalid_tensor(f"tensor '{name}' of type String carries bytes in 'data'")
        # a string on this wire has the format of a BYTES element of the IR
        return _string_tensor(view, table, strings_slot, shape, name)
    if datatype is None:
        what = "the type Null" if code == NULL else f"the unknown type {code}"
        raise invalid_tensor(f"tensor '{name}' has {what}")
    if strings_slot and _u32(view, follow(view, table + strings_slot))[0]:
        raise invalid_tensor(f"tensor '{name}' of datatype {datatype.value} carries strings in 'string_val'")
    needed = element_count(shape, name) * datatype.itemsize
    if needed != len(data):
        raise invalid_tensor(
            f"tensor '{name}' of datatype {datatype.value} and shape {list(shape)} needs {needed} bytes, "
            f"got {len(data)}"
        )
    return Tensor(name, datatype, shape, data)


def text(raw: bytes | memoryview, what: str) -> str:
    """``raw`` as UTF-8 text; ``what`` names it in the error."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise malformed(f"{what} is not UTF-8") from error


def unfolded(view: memoryview) -> InferenceError:
    """The error for a message whose offsets share too many bytes."""
    return malformed(
        f"the GraphPipe message of {len(view)} bytes unfolds to more than {MAX_UNFOLDING} times its size"
    )


def _room(view: memoryview) -> int:
    """The limit for the bytes of the strings of one vector."""
    return max(MAX_UNFOLDING * len(view), ALWAYS_UNFOLDED)


def _vector(view: memoryview, at: int, itemsize: int) -> tuple[int, int]:
    """First element and length of the vector that the offset at ``at`` leads to."""
    at += _u32(view, at)[0]
    length = _u32(view, at)[0]
    at += 4
    if at + length * itemsize > len(view):
        raise outside(view)
    return at, length


def _string_tensor(view: memoryview, table: int, slot: int, shape: tuple[int, ...], name: str) -> Tensor:
    needed, count = element_count(shape, name), length(view, table, slot)
    if needed != count:
        raise invalid_tensor(
            f"tensor '{name}' of type String and shape {list(shape)} needs {needed} strings, got {count}"
        )
    return Tensor(name, Datatype.BYTES, shape, packed_strings(view, table, slot).toreadonly())
