"""The walker and writer of the wire format, held against protobuf's own classes."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from interlingua.protocols import protobuf_wire
from interlingua.protocols.protobuf_wire import (
    MAX_FIELDS,
    MAX_MESSAGE_BYTES,
    join,
    pack_varints,
    read_fields,
    split,
    unpack_varints,
    varint,
)
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.oip import MESSAGES

REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
CONTENTS: Any = MESSAGES["inference.InferTensorContents"]
RAW = 7


def taken(message: bytes) -> tuple[bytes, list[bytes]]:
    rest, contents = split(message, RAW)
    return bytes(rest), [bytes(content) for content in contents]


@pytest.mark.parametrize(
    ("message", "rest", "contents"),
    [
        (b"", b"", []),
        (b"\x0a\x01m", b"\x0a\x01m", []),
        (b"\x3a\x00", b"", [b""]),
        (b"\x3a\x02ab\x0a\x01m\x3a\x01c", b"\x0a\x01m", [b"ab", b"c"]),
        (b"\x0a\x01m\x3a\x01c\x1a\x01i", b"\x0a\x01m\x1a\x01i", [b"c"]),
        (b"\xba\x80\x00\x01c", b"", [b"c"]),  # a tag in more bytes than it needs
        (b"\x3a\x81\x80\x00c", b"", [b"c"]),  # a length in more bytes than it needs
        (b"\x38\x05", b"\x38\x05", []),  # the field's number with another type
        (b"\x3d\x00\x00\x00\x00", b"\x3d\x00\x00\x00\x00", []),
        (b"\x39" + bytes(8), b"\x39" + bytes(8), []),
        (b"\x7b\x3a\x01x\x7c", b"\x7b\x3a\x01x\x7c", []),  # the field inside of a group
        (b"\x7b\x83\x01\x84\x01\x10\x01\x7c\x3a\x01c", b"\x7b\x83\x01\x84\x01\x10\x01\x7c", [b"c"]),
    ],
)
def test_split(message: bytes, rest: bytes, contents: list[bytes]) -> None:
    assert taken(message) == (rest, contents)


@pytest.mark.parametrize(
    "message",
    [
        b"\x3a",
        b"\x3a\x02a",
        b"\x3a\x80",
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x80",
        b"\x38",
        b"\x38\x80",
        b"\x3d\x00",
        b"\x39\x00",
        b"\x7b",
        b"\x7b\x3a\x01",
        b"\x7b\x84\x01",  # the end of another group
        b"\x7c",
        b"\x3e\x00",
        b"\x3f\x00",
        b"\x7b" * 10_000,
    ],
)
def test_bytes_that_are_no_message(message: bytes) -> None:
    with pytest.raises(DecodeError):
        split(message, RAW)
    with pytest.raises(DecodeError):
        REQUEST.FromString(message)


def test_contents_are_views_of_the_message() -> None:
    message = bytes(1000)
    head = b"\x3a\xe8\x07"
    buffer = bytearray(head + message)
    _, (content,) = split(buffer, RAW)
    buffer[3] = 9
    assert content[0] == 9
    assert len(content) == 1000


def test_fields_by_the_million_are_refused() -> None:
    assert len(split(b"\x3a\x00" * MAX_FIELDS, RAW)[1]) == MAX_FIELDS
    with pytest.raises(DecodeError, match=f"more than {MAX_FIELDS} fields"):
        split(b"\x3a\x00" * (MAX_FIELDS + 1), RAW)


@given(
    st.text(max_size=5),
    st.lists(st.binary(max_size=200), max_size=4),
    st.lists(st.binary(max_size=3), max_size=2),
)
def test_join_writes_what_protobuf_writes(name: str, raws: list[bytes], inputs: list[bytes]) -> None:
    head = REQUEST(model_name=name)
    for data in inputs:
        head.inputs.add().contents.bytes_contents.append(data)
    whole = REQUEST()
    whole.CopyFrom(head)
    whole.raw_input_contents.extend(raws)
    joined = join(head.SerializeToString(), RAW, raws)
    assert joined == whole.SerializeToString()
    assert taken(joined) == (head.SerializeToString(), raws)


def test_join_refuses_more_than_a_message_holds() -> None:
    with (
        mmap.mmap(-1, MAX_MESSAGE_BYTES) as untouched,
        memoryview(untouched) as content,
        pytest.raises(InferenceError, match="2 GiB") as caught,
    ):
        join(b"\x0a\x01m", RAW, [content])
    assert caught.value.code is ErrorCode.TOO_LARGE


def fields() -> st.SearchStrategy[bytes]:
    """Fields of any number and type, most of them whole."""
    number = st.sampled_from([1, 3, 4, 5, 6, RAW, RAW, 15, 16, 2000])
    key = st.tuples(number, st.integers(0, 7)).map(lambda pair: varint(pair[0] << 3 | pair[1]))
    blob = st.binary(max_size=8).map(lambda data: varint(len(data)) + data)
    value = st.one_of(blob, blob, st.integers(0, 2**64 - 1).map(varint), st.binary(max_size=9))
    return st.builds(bytes.__add__, key, value)


@given(st.lists(fields(), max_size=6).map(b"".join))
@example(b"\x3a\x03abc\x7b\x3a\x01x\x7c")
def test_split_and_protobuf_agree(message: bytes) -> None:
    """What protobuf parses, split parses to the same; what it refuses, split or the rest refuses."""
    try:
        expected = REQUEST.FromString(message)
    except DecodeError:
        with pytest.raises(DecodeError):
            REQUEST.FromString(split(message, RAW)[0])
        return
    rest, raws = split(message, RAW)
    found = REQUEST.FromString(rest)
    assert not found.raw_input_contents
    found.raw_input_contents.extend(bytes(raw) for raw in raws)
    assert found == expected


@given(st.integers(0, 2**64 - 1))
@example(127)
@example(128)
@example(2**64 - 1)
def test_varint(value: int) -> None:
    field = CONTENTS(uint64_contents=[value]).SerializeToString()
    assert field == b"\x2a" + bytes([len(varint(value))]) + varint(value)


INTEGERS = {
    "int_contents": (np.int32, st.integers(-(2**31), 2**31 - 1)),
    "int64_contents": (np.int64, st.integers(-(2**63), 2**63 - 1)),
    "uint_contents": (np.uint32, st.integers(0, 2**32 - 1)),
    "uint64_contents": (np.uint64, st.integers(0, 2**64 - 1)),
}


@pytest.mark.parametrize("field", INTEGERS)
@given(data=st.data())
def test_packed_varints(field: str, data: st.DataObject) -> None:
    dtype, values = INTEGERS[field]
    numbers = data.draw(st.lists(st.one_of(values, st.integers(0, 200)), min_size=1, max_size=20))
    message = CONTENTS(**{field: numbers}).SerializeToString()
    _, (packed,) = split(message, CONTENTS.DESCRIPTOR.fields_by_name[field].number)
    assert pack_varints(np.array(numbers, dtype)) == packed
    found = unpack_varints(packed)
    assert found.astype(dtype).tolist() == numbers
    assert found.tolist() == [number % 2**64 for number in numbers]


def test_no_varints() -> None:
    assert unpack_varints(b"").tolist() == []
    assert pack_varints(np.array([], np.int32)) == b""


@pytest.mark.parametrize("packed", [b"\x80", b"\x01\x80", b"\xff" * 10 + b"\x01"])
def test_packed_varints_that_are_none(packed: bytes) -> None:
    with pytest.raises(DecodeError, match="varint"):
        unpack_varints(packed)
    with pytest.raises(DecodeError):
        CONTENTS.FromString(b"\x2a" + varint(len(packed)) + packed)


@given(st.text(max_size=200), st.integers(0, 2**64 - 1), st.floats(allow_nan=False))
def test_fields_of_a_small_message(text: str, number: int, skipped: float) -> None:
    parameter = MESSAGES["inference.InferParameter"]
    wire = b"".join(
        parameter(**{field: value}).SerializeToString()
        for field, value in (
            ("string_param", "before"),
            ("double_param", skipped),
            ("uint64_param", number),
            ("string_param", text),
        )
    )
    # what has a fixed size is left out, of what comes twice the last one counts
    assert read_fields(wire) == {3: text.encode(), 5: number}


@pytest.mark.parametrize(
    "wire", [b"\x08", b"\x80", b"\x0a\x02a", b"\x0a", b"\x0f", b"\x09\x00", b"\x0c"], ids=repr
)
def test_small_messages_that_are_none(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        read_fields(wire)


def test_fields_come_in_their_order() -> None:
    wire = b"\x08\x96\x01\x12\x01a\x08\x01\x1d\x01\x02\x03\x04\x21" + bytes(8) + b"\x2b\x08\x01\x2c\x12\x00"
    assert [
        (number, kind, bytes(value) if isinstance(value, memoryview) else value)
        for number, kind, value in protobuf_wire.fields(wire)
    ] == [
        (1, 0, 150),
        (2, 2, b"a"),
        (1, 0, 1),
        (3, 5, b"\x01\x02\x03\x04"),
        (4, 1, bytes(8)),
        (5, 3, b""),
        (2, 2, b""),
    ]


@pytest.mark.parametrize("wire", [b"\x00\x01", b"\x80\x80\x80\x80\x80\x01\x00"], ids=repr)
def test_numbers_that_no_field_has(wire: bytes) -> None:
    with pytest.raises(DecodeError, match="no field of tag"):
        list(protobuf_wire.fields(wire))


def test_no_more_fields_than_may_be_walked_over() -> None:
    assert sum(1 for _ in protobuf_wire.fields(b"\x0a\x00" * MAX_FIELDS)) == MAX_FIELDS
    with pytest.raises(DecodeError, match=f"more than {MAX_FIELDS} fields"):
        list(protobuf_wire.fields(b"\x0a\x00" * (MAX_FIELDS + 1)))
