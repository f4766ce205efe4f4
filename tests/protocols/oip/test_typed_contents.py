"""Typed contents, as protobuf writes them in packed and in single form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.oip.typed_contents import read_contents
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor
from interlingua.schemas.oip import MESSAGES
from tests.strategies import tensors

CONTENTS: Any = MESSAGES["inference.InferTensorContents"]
FIELDS = {
    "bool_contents": [Datatype.BOOL],
    "int_contents": [Datatype.INT8, Datatype.INT16, Datatype.INT32],
    "int64_contents": [Datatype.INT64],
    "uint_contents": [Datatype.UINT8, Datatype.UINT16, Datatype.UINT32],
    "uint64_contents": [Datatype.UINT64],
    "fp32_contents": [Datatype.FP32],
    "fp64_contents": [Datatype.FP64],
    "bytes_contents": [Datatype.BYTES],
}
FIELD_OF = {datatype: field for field, datatypes in FIELDS.items() for datatype in datatypes}


def contents_of(tensor: Tensor) -> Any:
    return CONTENTS(**{FIELD_OF[tensor.datatype]: tensor.numpy().ravel().tolist()})


def test_every_datatype_but_the_short_floats_has_a_field() -> None:
    assert set(Datatype) - set(FIELD_OF) == {Datatype.FP16, Datatype.BF16}


def same(read: Any, tensor: Tensor) -> bool:
    """Whether ``read`` is the data of ``tensor``; Python's floats do not keep the payload of a NaN."""
    found = Tensor.checked("x", tensor.datatype, tensor.shape, read).numpy()
    return np.array_equal(found, tensor.numpy(), equal_nan=tensor.datatype.dtype.kind == "f")


@given(tensors(allowed=FIELD_OF, name="x"))
def test_packed(tensor: Tensor) -> None:
    assert same(read_contents("input 'x'", tensor.datatype, contents_of(tensor)), tensor)


@given(tensors(allowed={Datatype.FP32, Datatype.FP64}, name="x"))
def test_floats_keep_every_bit(tensor: Tensor) -> None:
    field = 6 if tensor.datatype is Datatype.FP32 else 7
    data = bytes(tensor.view)
    message = bytes([field << 3 | 2, len(data) % 128 | 128, len(data) // 128]) + data
    assert read_contents("input 'x'", tensor.datatype, CONTENTS.FromString(message)) == data


@pytest.mark.parametrize(
    ("datatype", "message", "data"),
    [
        (Datatype.BOOL, b"\x08\x01\x08\x00\x0a\x02\x05\x00", b"\1\0\1\0"),
        (Datatype.INT8, b"\x10\x05\x12\x01\x06\x10\x07", b"\5\6\7"),
        (Datatype.FP32, b"\x35\x00\x00\x80\x3f\x32\x04\x00\x00\x00\x40", b"\0\0\x80\x3f\0\0\0\x40"),
        (Datatype.UINT8, b"\x20\x07\x78\x01\x82\x01\x01a", b"\7"),  # unknown fields behind
        (Datatype.UINT8, b"\x78\x00" * 70_000 + b"\x20\x07", b"\7"),
        (Datatype.BYTES, b"\x42\x01a\x42\x00", b"\1\0\0\0a\0\0\0\0"),
        (Datatype.FP16, b"", b""),
        (Datatype.FP32, b"\x32\x00", b""),
        (Datatype.FP32, b"\x12\x00", b""),
    ],
)
def test_forms_of_the_wire(datatype: Datatype, message: bytes, data: bytes) -> None:
    assert read_contents("input 'x'", datatype, CONTENTS.FromString(message)) == data


@pytest.mark.parametrize("datatype", [d for f in ("int_contents", "uint_contents") for d in FIELDS[f]])
def test_narrow_integers(datatype: Datatype) -> None:
    limits = np.iinfo(datatype.dtype)
    field = FIELD_OF[datatype]
    extremes = [int(limits.min), int(limits.max)]
    read = read_contents("input 'x'", datatype, CONTENTS(**{field: extremes}))
    assert np.frombuffer(read, datatype.dtype).tolist() == extremes
    for outside in (limits.min - 1, limits.max + 1):
        if datatype.itemsize == 4 or (field == "uint_contents" and outside < 0):
            continue  # not even protobuf's field holds it
        with pytest.raises(InferenceError) as caught:
            read_contents("input 'x'", datatype, CONTENTS(**{field: [1, int(outside)]}))
        assert caught.value.code is ErrorCode.INVALID_TENSOR
        assert caught.value.message == f"input 'x': element 1 is {outside}, outside of {datatype.value}"


@pytest.mark.parametrize(
    ("datatype", "fields", "words"),
    [
        (Datatype.FP16, {"fp32_contents": [1]}, "input 'x': there are no typed contents for datatype FP16"),
        (Datatype.BF16, {"bytes_contents": [b"ab"]}, "datatype BF16"),
        (Datatype.FP32, {"fp64_contents": [1]}, "has fp64_contents, expected fp32_contents alone"),
        (Datatype.FP32, {"fp32_contents": [1], "int_contents": [1]}, "has int_contents and fp32_contents"),
        (Datatype.INT64, {"int_contents": [1]}, "expected int64_contents alone"),
        (Datatype.BOOL, {"uint_contents": [1]}, "expected bool_contents alone"),
    ],
)
def test_wrong_fields(datatype: Datatype, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InferenceError, match=words) as caught:
        read_contents("input 'x'", datatype, CONTENTS(**fields))
    assert caught.value.code is ErrorCode.INVALID_TENSOR


@given(st.sampled_from(sorted(FIELD_OF, key=repr)), st.binary(max_size=30))
def test_any_contents_are_read_or_refused(datatype: Datatype, message: bytes) -> None:
    try:
        contents = CONTENTS.FromString(message)
        data = read_contents("input 'x'", datatype, contents)
    except (DecodeError, InferenceError):
        return
    numbers = np.array(list(getattr(contents, FIELD_OF[datatype])), datatype.dtype)
    found = Tensor.checked("x", datatype, numbers.shape, data).numpy()
    assert np.array_equal(found, numbers, equal_nan=datatype.dtype.kind == "f")
