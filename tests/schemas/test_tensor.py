from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    SharedMemoryRef,
    Tensor,
    element_count,
    pack_bytes,
)
from interlingua.schemas.datatypes import DATATYPES, datatype_of

FIXED = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]


def test_there_are_fourteen_datatypes_of_the_right_size() -> None:
    assert {name: datatype.itemsize for name, datatype in DATATYPES.items()} == {
        "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4,
        "INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8, "BYTES": 0,
    }  # fmt: skip


@pytest.mark.parametrize("datatype", FIXED)
def test_every_datatype_is_little_endian(datatype: Datatype) -> None:
    assert datatype.dtype.byteorder in "<|=" and datatype.dtype.newbyteorder("<") == datatype.dtype
    assert datatype_of(datatype.dtype) is datatype


@pytest.mark.parametrize(
    ("dtype", "datatype"),
    [(">i4", Datatype.INT32), (">f8", Datatype.FP64), ("O", Datatype.BYTES), ("S3", Datatype.BYTES),
     ("U3", Datatype.BYTES), ("c8", None), ("M8[s]", None), (ml_dtypes.bfloat16, Datatype.BF16)],
)  # fmt: skip
def test_datatype_of_numpy(dtype: object, datatype: Datatype | None) -> None:
    assert datatype_of(np.dtype(dtype)) is datatype  # type: ignore[arg-type]


def test_a_checked_tensor_is_a_read_only_view_of_the_same_memory() -> None:
    body = bytearray(struct.pack("<4f", 1, 2, 3, 4))
    tensor = Tensor.checked("x", Datatype.FP32, [2, 2], memoryview(body))
    assert tensor.shape == (2, 2) and tensor.view.readonly
    array = tensor.numpy()
    assert not array.flags.writeable
    body[0:4] = struct.pack("<f", 9)
    assert array[0, 0] == 9
    with pytest.raises(TypeError):
        tensor.view[0] = 1


def test_scalars_and_zero_dimensions() -> None:
    scalar = Tensor.checked("x", Datatype.INT64, (), struct.pack("<q", -7))
    assert scalar.numpy().shape == () and scalar.numpy()[()] == -7
    empty = Tensor.checked("x", Datatype.FP32, (0, 3), b"")
    assert empty.numpy().shape == (0, 3) and empty.count == 0
    assert Tensor.checked("s", Datatype.BYTES, (0,), b"").elements() == []


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "words"),
    [
        (Datatype.FP32, [2], b"1234", "'x' of datatype FP32 and shape [2] needs 8 bytes, got 4"),
        (Datatype.FP32, [], b"", "needs 4 bytes, got 0"),
        (Datatype.UINT8, [-1], b"1", "'x' has a negative dimension"),
        (Datatype.UINT8, [2**63], b"1", "'x' of shape [9223372036854775808] has more elements"),
        (Datatype.UINT8, [2**32, 2**32], b"1", "more elements than 64 bits can count"),
        (Datatype.UINT8, [0, 2**32, 2**32], b"", "more elements than 64 bits can count"),
        (Datatype.FP64, [2**62], b"", "got 0"),
        (Datatype.BYTES, [2], b"\x01\0\0\0a", "'x' of datatype BYTES needs 2 length-prefixed elements"),
        (Datatype.BYTES, [1], b"\x02\0\0\0a", "needs 1"),
        (Datatype.BYTES, [1], b"\xff\xff\xff\xffa", "needs 1"),
        (Datatype.BYTES, [2**62], b"\x01\0\0\0a", "length-prefixed"),
        (Datatype.BYTES, [1], b"\0\0\0\0\0\0\0\0", "needs 1"),
        (Datatype.BYTES, [0], b"\0\0\0\0", "needs 0"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(
    datatype: Datatype, shape: list[int], data: bytes, words: str
) -> None:
    with pytest.raises(InferenceError) as caught:
        Tensor.checked("x", datatype, shape, data)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert words in caught.value.message


def test_from_numpy_copies_only_what_it_must() -> None:
    plain = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert np.shares_memory(Tensor.from_numpy("x", plain).numpy(), plain)
    swapped = Tensor.from_numpy("x", plain.astype(">i4"))
    assert swapped.datatype is Datatype.INT32 and (swapped.numpy() == plain).all()
    assert (Tensor.from_numpy("x", plain.T).numpy() == plain.T).all()
    assert Tensor.from_numpy("x", np.float64(2.5)[None][0:0]).nbytes == 0


def test_from_numpy_takes_text_and_bytes_and_nothing_else() -> None:
    assert Tensor.from_numpy("x", np.array([b"a\0", "é"], object)).elements() == [b"a\0", "é".encode()]
    assert Tensor.from_numpy("x", np.array(["ab", "c"])).elements() == [b"ab", b"c"]
    for array in (np.array([1, "a"], object), np.array([1j])):
        with pytest.raises(InferenceError, match="'x'"):
            Tensor.from_numpy("x", array)


@given(st.lists(st.binary()))
def test_bytes_pack_and_list_again(elements: list[bytes]) -> None:
    tensor = Tensor.checked("x", Datatype.BYTES, [len(elements)], pack_bytes(elements))
    assert tensor.elements() == elements
    assert tensor.numpy().tolist() == elements


@given(st.binary(max_size=40), st.integers(0, 12))
def test_packed_bytes_are_accepted_exactly_when_they_hold_the_count(data: bytes, count: int) -> None:
    found, position = 0, 0
    while position + 4 <= len(data):
        position += 4 + int.from_bytes(data[position : position + 4], "little")
        found += 1
    whole = position == len(data) and found == count
    try:
        Tensor.checked("x", Datatype.BYTES, [count], data)
    except InferenceError:
        assert not whole
    else:
        assert whole


@given(st.lists(st.integers(0, 2**20), max_size=4))
def test_element_count_is_the_product(shape: list[int]) -> None:
    product = int(np.prod([int(d) for d in shape], dtype=object)) if shape else 1
    nonzero = int(np.prod([d for d in shape if d], dtype=object)) if any(shape) else 1
    if nonzero > 2**63 - 1:
        with pytest.raises(InferenceError):
            element_count(shape, "x")
    else:
        assert element_count(shape, "x") == product


def test_a_reference_into_shared_memory_is_no_data_yet() -> None:
    tensor = Tensor("x", Datatype.UINT8, (4,), SharedMemoryRef("region", 0, 4))
    assert tensor.nbytes == 4
    with pytest.raises(InferenceError, match="region 'region'"):
        tensor.numpy()


def test_error_numbers_are_stable() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        "MALFORMED": 1, "INVALID_TENSOR": 2, "UNREPRESENTABLE": 3, "NOT_FOUND": 4, "ALREADY_EXISTS": 5,
        "UNSUPPORTED": 6, "UNAUTHENTICATED": 7, "FORBIDDEN": 8, "TOO_LARGE": 9, "OVERLOADED": 10,
        "UNAVAILABLE": 11, "DEADLINE_EXCEEDED": 12, "CANCELLED": 13, "MODEL_FAILED": 14,
        "BAD_UPSTREAM": 15, "INTERNAL": 16,
    }  # fmt: skip
    retryable = {code.name for code in ErrorCode if code.retryable}
    assert retryable == {"OVERLOADED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"}
    assert InferenceError(ErrorCode.OVERLOADED, "x").retryable
    assert not InferenceError(ErrorCode.OVERLOADED, "x", retryable=False).retryable
