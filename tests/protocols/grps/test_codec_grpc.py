"""grps messages in protobuf, held against protobuf's own classes and against what was recorded."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.message import DTYPES, OK, GrpsMessage, Kind, Status
from interlingua.protocols.protobuf_wire import join, varint
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.grps import MESSAGES

MESSAGE: Any = MESSAGES["grps.protos.v1.GrpsMessage"]
TENSOR: Any = MESSAGES["grps.protos.v1.GenericTensor"]
GOLDEN = Path(__file__).parents[2] / "golden" / "grps" / "brpc"


def payload(frame: bytes) -> bytes:
    """What stands behind the meta of the first baidu_std frame."""
    body, meta = int.from_bytes(frame[4:8], "big"), int.from_bytes(frame[8:12], "big")
    return frame[12 + meta : 12 + body]


# payloads that are compressed, have an attachment behind them, or are attachments
OTHER = ("Predict_compress", "Predict_attachment.c2s", "httpport_baidu_std")
RECORDED = sorted(
    path for path in GOLDEN.iterdir() if path.read_bytes()[:4] == b"PRPC" and not path.name.startswith(OTHER)
)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_messages_are_written_as_they_were(path: Path) -> None:
    data = payload(path.read_bytes())
    assert write_message(read_message(data)) == data


def test_all_that_was_recorded() -> None:
    assert len(RECORDED) > 30
    answer = read_message(payload((GOLDEN / "Predict_all.s2c").read_bytes()))
    assert answer.status == OK
    found = {tensor.name: list(tensor.flat) for tensor in answer.tensors}
    assert found["u8"] == [0, 1, 255]
    assert found["i8"] == [-128, 0, 127]
    assert found["i64"] == [-(2**63), 0, 2**63 - 1]
    assert found["s"] == ["a", '你好 "q" \n']
    assert found["f16"] == [np.float32(0.1), 1, 65504, 0]
    empty = answer.tensors[-1]
    assert (empty.name, empty.dtype, empty.shape, len(empty.flat)) == ("empty", 7, (0,), 0)


@pytest.mark.parametrize("name", [name for name in DTYPES if name != 9])
def test_lists_are_read_packed_and_one_by_one(name: int) -> None:
    dtype = DTYPES[name]
    values = [0, 1, 127, 128, 300] if dtype.wire.kind == "u" else [0, 1, -1, 300, -300, 2**30]
    tensor = TENSOR(name="a", dtype=name, shape=[len(values)])
    getattr(tensor, dtype.field).extend(values)
    packed = tensor.SerializeToString()
    loose = TENSOR(name="a", dtype=name).SerializeToString() + b"".join(
        piece for value in values for piece in _loose(dtype, value)
    )
    for contents in (packed, loose, packed + TENSOR(name="b").SerializeToString()):
        (found,) = read_message(wrapped(contents)).tensors
        assert found.flat.tolist() == values
        assert found.flat.dtype == dtype.wire


def _loose(dtype: Any, value: int) -> list[bytes]:
    """One element of a list as a field of its own."""
    tag = dtype.field_number << 3
    if dtype.wire.kind == "f":
        kind = 5 if dtype.wire.itemsize == 4 else 1
        return [varint(tag | kind), np.array(value, dtype.wire).tobytes()]
    return [varint(tag), varint(value & 2**64 - 1)]


def wrapped(*tensors: bytes) -> bytes:
    """A message of gtensors around the contents of each; no class tidies up what a test is about."""
    return join(b"", 5, [join(b"", 1, tensors)])


def test_floats_are_views_of_the_message() -> None:
    tensor = TENSOR(name="a", dtype=7, shape=[3], flat_float32=[1, 2, 3])
    data = wrapped(tensor.SerializeToString())
    (found,) = read_message(data).tensors
    assert not found.flat.flags.owndata
    assert not found.flat.flags.writeable
    assert np.shares_memory(found.flat, np.frombuffer(data, np.uint8))


def test_only_the_list_of_the_datatype_counts() -> None:
    tensor = TENSOR(name="a", dtype=7, shape=[2], flat_int32=[1, 2])
    (found,) = read_message(wrapped(tensor.SerializeToString())).tensors
    assert (found.dtype, found.shape, len(found.flat)) == (7, (2,), 0)


def test_a_message_that_comes_in_pieces_is_one() -> None:
    def piece(name: str) -> Any:
        return MESSAGE(gtensors={"tensors": [{"name": name, "dtype": "DT_STRING", "flat_string": [name]}]})

    data = piece("a").SerializeToString() + piece("b").SerializeToString()
    assert [tensor.name for tensor in read_message(data).tensors] == ["a", "b"]
    between = MESSAGE(str_data="x").SerializeToString()
    later = piece("a").SerializeToString() + between + piece("b").SerializeToString()
    assert [tensor.name for tensor in read_message(later).tensors] == ["b"]
    assert read_message(data + between).kind is Kind.STR_DATA


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x12\x01",
        b"\x12\x02\xff\xfe",  # a model that is no text
        b"\x22\x01\xff",
        b"\x2a\x03\x0a\x01\x0a",
        b"\x2a\x05\x0a\x03\x52\x01\x00",  # a float of one byte
        b"\x2a\x05\x0a\x03\x3a\x01\x80",  # a varint cut short
        b"\x3a\x02\x0a\x05",
        b"\x32\x01\x0a",  # an ndarray has no contents, but may have unknown fields
        b"\x2a\x02\x0a\x05\x1a\x01x",  # tensors whose place bin_data takes
        b"\x0a\x01\x08",
        b"\x00\x00",
        b"\xff" * 12,
    ],
)
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(InferenceError) as caught:
        read_message(data)
    assert caught.value.code is ErrorCode.MALFORMED


def test_of_two_kinds_of_data_the_last_is_all_there_is() -> None:
    """As protobuf has it: a member of a oneof takes the place of another."""
    octets, words = (MESSAGE(bin_data=b"octets"), MESSAGE(str_data="words"))
    tensors = MESSAGE.FromString(b"")
    tensors.gtensors.tensors.add(name="t", dtype=4, flat_int32=[1])
    for *others, last in permutations([octets, words, tensors]):
        joined = b"".join(each.SerializeToString() for each in (*others, last))
        assert read_message(joined) == read_message(last.SerializeToString())
        assert MESSAGE.FromString(joined) == last


def test_text_that_is_no_unicode_is_not_written() -> None:
    with pytest.raises(InferenceError) as caught:
        write_message(GrpsMessage(Kind.STR_DATA, str_data="\ud800"))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_status_and_gmap() -> None:
    gmap = {
        "s_s": {"a": "x"},
        "s_b": {"b": b"\0\xff"},
        "s_i32": {"c": -1},
        "s_i64": {"d": 2**62},
        "s_f": {"e": 0.5},
        "s_d": {"f": 0.1},
    }
    message = GrpsMessage(Kind.GMAP, "m-1", Status(503, "no", 7), gmap=gmap)
    data = write_message(message)
    assert read_message(data) == message
    assert MESSAGE.FromString(data).gmap.s_b["b"] == b"\0\xff"
