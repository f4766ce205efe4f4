"""Typed contents: tensor elements as the numbers of a protobuf message, read into the IR's packed form. They
come from clients that build messages by hand, and in answers of KServe and MLServer. We write raw
contents."""

from __future__ import annotations

from typing import Any

import numpy as np

from interlingua.protocols.protobuf_wire import split, unpack_varints
from interlingua.protocols.wire import Buffer
from interlingua.schemas import Datatype, invalid_tensor, pack_bytes
from interlingua.schemas.oip import MESSAGES

_FIELDS = {
    Datatype.BOOL: "bool_contents",
    Datatype.INT8: "int_contents",
    Datatype.INT16: "int_contents",
    Datatype.INT32: "int_contents",
    Datatype.INT64: "int64_contents",
    Datatype.UINT8: "uint_contents",
    Datatype.UINT16: "uint_contents",
    Datatype.UINT32: "uint_contents",
    Datatype.UINT64: "uint64_contents",
    Datatype.FP32: "fp32_contents",
    Datatype.FP64: "fp64_contents",
    Datatype.BYTES: "bytes_contents",
}
"""The field of each datatype; the 16-bit floats have none."""

_NUMBERS = {field.name: field.number for field in MESSAGES["inference.InferTensorContents"].DESCRIPTOR.fields}
_ON_THE_WIRE = frozenset({Datatype.BOOL, Datatype.FP32, Datatype.FP64})
"""Datatypes whose packed field has the bytes of the IR."""


def count_of(contents: Any) -> int:
    """The number of elements in an ``InferTensorContents`` message."""
    return sum(len(values) for _, values in contents.ListFields())


def read_contents(owner: str, datatype: Datatype, contents: Any) -> Buffer:
    """The elements of an ``InferTensorContents`` message as the data of a tensor, b"" if there are none.

    ``owner`` names the tensor in errors (``input 'X'``). Raises INVALID_TENSOR for the field of another
    datatype, and for a number out of range.
    """
    filled = [descriptor.name for descriptor, _ in contents.ListFields()]
    if not filled:
        return b""
    wanted = _FIELDS.get(datatype)
    if wanted is None:
        raise invalid_tensor(
            f"{owner}: there are no typed contents for datatype {datatype.value}, send them raw"
        )
    if filled != [wanted]:
        raise invalid_tensor(
            f"{owner} of datatype {datatype.value} has {' and '.join(filled)}, expected {wanted} alone"
        )
    if datatype is Datatype.BYTES:
        return pack_bytes(contents.bytes_contents)
    # Protobuf returns numbers one by one; serialized again they are one packed field.
    contents.DiscardUnknownFields()
    _, (packed,) = split(contents.SerializeToString(), _NUMBERS[wanted])
    return packed if datatype in _ON_THE_WIRE else _integers(owner, datatype, packed)


def _integers(owner: str, datatype: Datatype, packed: memoryview) -> Buffer:
    unsigned = unpack_varints(packed)
    values = unsigned.view(np.int64) if datatype.dtype.kind == "i" else unsigned
    narrowed = values.astype(datatype.dtype)
    wrong = np.flatnonzero(narrowed != values)
    if len(wrong):
        raise invalid_tensor(
            f"{owner}: element {wrong[0]} is {values[wrong[0]]}, outside of {datatype.value}"
        )
    return narrowed.view(np.uint8).data
