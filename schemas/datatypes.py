"""The fourteen element types of the IR, under the names of the Open Inference Protocol.

A datatype has its size on the wire and its NumPy equivalent; a dialect's codec has its name there.
"""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np


class Datatype(enum.Enum):
    """An element type; ``value`` is its Open Inference Protocol name.

    ``itemsize`` is the size of one element in bytes, 0 for BYTES, whose elements have lengths of
    their own. ``dtype`` is always little-endian, as all dialects are; BYTES maps to object.
    """

    BOOL = ("BOOL", np.dtype(np.bool_))
    UINT8 = ("UINT8", np.dtype("u1"))
    UINT16 = ("UINT16", np.dtype("<u2"))
    UINT32 = ("UINT32", np.dtype("<u4"))
    UINT64 = ("UINT64", np.dtype("<u8"))
    INT8 = ("INT8", np.dtype("i1"))
    INT16 = ("INT16", np.dtype("<i2"))
    INT32 = ("INT32", np.dtype("<i4"))
    INT64 = ("INT64", np.dtype("<i8"))
    FP16 = ("FP16", np.dtype("<f2"))
    BF16 = ("BF16", np.dtype(ml_dtypes.bfloat16))
    FP32 = ("FP32", np.dtype("<f4"))
    FP64 = ("FP64", np.dtype("<f8"))
    BYTES = ("BYTES", np.dtype(object))

    itemsize: int
    dtype: np.dtype[Any]

    def __new__(cls, name: str, dtype: np.dtype[Any]) -> Datatype:
        member = object.__new__(cls)
        member._value_ = name
        member.dtype = dtype
        member.itemsize = 0 if dtype.hasobject else dtype.itemsize
        return member

    # Members are singletons; the inherited hash is Python code, too slow for lookups on the hot path.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return str(self._value_)


DATATYPES: dict[str, Datatype] = {member.value: member for member in Datatype}
"""Every datatype by its name: a plain dict, because ``Datatype(name)`` raises through ``enum``."""

_BY_DTYPE: dict[np.dtype[Any], Datatype] = {
    member.dtype: member for member in Datatype if member is not Datatype.BYTES
}


def datatype_of(dtype: np.dtype[Any]) -> Datatype | None:
    """The datatype of ``dtype`` in either byte order, BYTES for strings and objects, None for others
    (complex, dates, structures)."""
    if dtype.kind in "OSU":
        return Datatype.BYTES
    return _BY_DTYPE.get(dtype.newbyteorder("<") if dtype.byteorder == ">" else dtype)
