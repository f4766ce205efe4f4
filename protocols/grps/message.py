"""The message of grps, between the bytes of either coding and the IR.

Tensors keep the numbers of the wire (a ``UINT8`` in 32 bits, a half as a float); ``tensors`` checks and
converts them. ``codec_grpc``, ``codec_json`` and ``json_writer`` read and write messages.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.protocols.wire import Buffer
from interlingua.schemas import pack_bytes, packed_elements

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
    """The outcome of a request. ``flag`` is a ``StatusFlag`` or an unknown number."""

    code: int = 0
    msg: str = ""
    flag: int = StatusFlag.UNKNOWN


OK = Status(200, "OK", StatusFlag.SUCCESS)

DT_STRING = 9


@dataclass(frozen=True, slots=True)
class Dtype:
    """A ``DataType``: its number and name, the list of its elements with its field number and type (None:
    text)."""

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


MANY = 1 << 12
"""From this number of strings on, reading or writing them takes more than about 2 ms."""


class PackedTexts(Sequence[str]):
    """Many strings as BYTES elements, in UTF-8: ``count`` of them in ``data``."""

    def __init__(self, count: int, data: memoryview) -> None:
        self._count = count
        self.data = data

    @classmethod
    def of(cls, texts: Sequence[str]) -> PackedTexts:
        """``texts``, packed. Raises ``UnicodeEncodeError``."""
        return cls(len(texts), memoryview(pack_bytes(map(str.encode, texts))))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[str]:
        for element in packed_elements(self.data):
            yield element.decode()


@dataclass(slots=True)
class GenericTensor:
    """A ``GenericTensor``. ``dtype`` is the number of a ``DataType``, known or not; ``flat`` has the elements
    of its list: an array of sufficient width, or text. ``shape`` may contradict it."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    flat: NDArray[Any] | Sequence[str]


GMAP_FIELDS: tuple[str, ...] = ("s_s", "s_b", "s_i32", "s_i64", "s_f", "s_d")
"""The maps of ``GenericMapData`` in the order of their numbers, which begin at 1."""

Gmap = Mapping[str, Mapping[str, Any]]
"""Entries (str, bytes, int or float) by map and key; empty maps may be missing."""


@dataclass(slots=True)
class GrpsMessage:
    """A ``GrpsMessage``. Only the data of ``kind`` counts. An ndarray is one FP32 tensor; in protobuf it has
    no contents."""

    kind: Kind = Kind.NOTHING
    model: str = ""
    status: Status | None = None
    bin_data: Buffer = b""
    str_data: str = ""
    tensors: tuple[GenericTensor, ...] = ()
    gmap: Gmap = field(default_factory=dict)
