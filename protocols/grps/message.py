"""The one message of grps, as it stands between the bytes of either coding and the IR.

Contract: plain values that say what a message holds, whatever it was written in. Tensors keep the numbers
as the wire has them (a ``UINT8`` in 32 bits, a half as a float); what those mean, and whether they fit, is
``codec``'s business, how they are written that of ``codec_grpc``, ``codec_json`` and ``json_writer``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.protocols.wire import Buffer

DIALECT_NAME = "grps"


class Kind(enum.Enum):
    """The members of ``data_oneof``; the value is the name on the wire."""

    NOTHING = ""
    BIN_DATA = "bin_data"
    STR_DATA = "str_data"
    GTENSORS = "gtensors"
    NDARRAY = "ndarray"
    GMAP = "gmap"

    __hash__ = object.__hash__


class StatusFlag(enum.IntEnum):
    """``Status.StatusFlag``."""

    UNKNOWN = 0
    SUCCESS = 1
    FAILURE = 2


@dataclass(frozen=True, slots=True)
class Status:
    """What became of a request. ``flag`` is a ``StatusFlag``, or a number that this contract lacks."""

    code: int = 0
    msg: str = ""
    flag: int = StatusFlag.UNKNOWN


OK = Status(200, "OK", StatusFlag.SUCCESS)

DT_STRING = 9


@dataclass(frozen=True, slots=True)
class Dtype:
    """A ``DataType``: its number, its name, the list that holds its elements, the number of that, and the
    type of number that stands there (None: text)."""

    number: int
    name: str
    field: str
    field_number: int
    wire: np.dtype[Any] | None


DTYPES: Mapping[int, Dtype] = {
    number: Dtype(number, f"DT_{name}", f"flat_{name.lower()}", number + 3, np.dtype(wire) if wire else None)
    for number, (name, wire) in enumerate(
        {
            "UINT8": "<u4",
            "INT8": "<i4",
            "INT16": "<i4",
            "INT32": "<i4",
            "INT64": "<i8",
            "FLOAT16": "<f4",
            "FLOAT32": "<f4",
            "FLOAT64": "<f8",
            "STRING": "",
        }.items(),
        start=1,
    )
}
"""Every ``DataType`` but the invalid one, by number."""


@dataclass(slots=True)
class GenericTensor:
    """A ``GenericTensor``. ``dtype`` is the number of a ``DataType``, known or not; ``flat`` holds the
    elements of the list that it selects: an array of any width that holds them, or text. The other lists
    do not count. Nothing says that ``shape`` agrees with it."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    flat: NDArray[Any] | Sequence[str]


GMAP_FIELDS: tuple[str, ...] = ("s_s", "s_b", "s_i32", "s_i64", "s_f", "s_d")
"""The maps of ``GenericMapData`` in the order of their numbers, which begin at 1."""

Gmap = Mapping[str, Mapping[str, Any]]
"""Entries (str, bytes, int or float) by key, by the map that they stand in; empty maps may be missing."""


@dataclass(slots=True)
class GrpsMessage:
    """A ``GrpsMessage``. Of the data only that of ``kind`` counts; an ndarray is one FP32 tensor, and in
    protobuf, where it has no contents, none. ``status`` None is a message without one."""

    kind: Kind = Kind.NOTHING
    model: str = ""
    status: Status | None = None
    bin_data: Buffer = b""
    str_data: str = ""
    tensors: tuple[GenericTensor, ...] = ()
    gmap: Gmap = field(default_factory=dict)
