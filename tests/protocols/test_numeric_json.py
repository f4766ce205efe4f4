"""Numbers between JSON and tensor data: strict in, nothing lost out, whichever parser does the work."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.json_document import MAX_DEPTH, LazyArray, parse_json, write_json
from interlingua.protocols.numeric_json import json_values, pack_values
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor, pack_bytes

LONG = 3000  # bytes of white space that make a document long enough for the other parser

pad = pytest.mark.parametrize("padding", [0, LONG], ids=["small", "large"])


def parsed(data: str, padding: int = 0) -> Any:
    text = '{"data":' + data + " " * padding + "}"
    return parse_json(text.encode(), {"data"})["data"]


def packed(data: str, datatype: Datatype, count: int, padding: int = 0) -> bytes:
    return bytes(pack_values("x", datatype, count, parsed(data, padding)))


def test_large_documents_keep_their_arrays_lazy() -> None:
    assert isinstance(parsed("[1, 2]", LONG), LazyArray)
    assert parsed("[1, 2]") == [1, 2]
    assert parsed("[1, 2]", LONG).tolist() == [1, 2]


@pad
@pytest.mark.parametrize(
    ("data", "datatype", "expected"),
    [
        ("[0, 255]", Datatype.UINT8, [0, 255]),
        ("[-128, 127]", Datatype.INT8, [-128, 127]),
        ("[65535]", Datatype.UINT16, [65535]),
        ("[-32768]", Datatype.INT16, [-32768]),
        ("[4294967295]", Datatype.UINT32, [4294967295]),
        ("[-2147483648]", Datatype.INT32, [-2147483648]),
        ("[18446744073709551615, 9007199254740993]", Datatype.UINT64, [2**64 - 1, 2**53 + 1]),
        ("[-9223372036854775808, 9007199254740993]", Datatype.INT64, [-(2**63), 2**53 + 1]),
        ("[true, false]", Datatype.BOOL, [True, False]),
        ("[0.1, 16777217, -0.0, 1e-45]", Datatype.FP32, [0.1, 16777216, -0.0, 1e-45]),
        ("[5e-324, 1, 1e308]", Datatype.FP64, [5e-324, 1, 1e308]),
        ("[0.5, 65504]", Datatype.FP16, [0.5, 65504]),
        ("[[1, 2], [3, 4]]", Datatype.INT32, [1, 2, 3, 4]),
        ("[[[1, 2]], [[3, 4]]]", Datatype.FP32, [1, 2, 3, 4]),
        ("[[true], [false]]", Datatype.BOOL, [True, False]),
        ("[1.0, 2, -0.0, 1e2, 9007199254740992.0]", Datatype.INT64, [1, 2, 0, 100, 2**53]),
        ("[255.0]", Datatype.UINT8, [255]),
        ("[]", Datatype.FP32, []),
        ("[[], []]", Datatype.INT8, []),
    ],
)
def test_numbers(data: str, datatype: Datatype, expected: list[Any], padding: int) -> None:
    assert packed(data, datatype, len(expected), padding) == np.array(expected, datatype.dtype).tobytes()


@pad
def test_strings_are_the_text_of_bytes(padding: int) -> None:
    data = '[["a", ""], ["\\u20ac\\ud83d\\ude00", "\\u0000"]]'
    expected = pack_bytes([b"a", b"", "€😀".encode(), b"\0"])
    assert packed(data, Datatype.BYTES, 4, padding) == expected


@pad
@pytest.mark.parametrize(
    ("data", "datatype", "message"),
    [
        ("[1, 1.5]", Datatype.INT32, "element 1 must be an integer, got a float"),
        ("[256.0]", Datatype.UINT8, "element 0 (256) is out of range for UINT8"),
        ("[9007199254740994.0]", Datatype.INT64, "element 0 must be an integer, got a float"),
        ("[1, NaN]", Datatype.INT32, "element 1 must be an integer, got a float"),
        ("[1.0]", Datatype.BOOL, "element 0 must be true or false, got a float"),
        ("[true]", Datatype.UINT8, "element 0 must be an integer, got a boolean"),
        ('["1"]', Datatype.INT64, "element 0 must be an integer, got a string"),
        ("[null]", Datatype.INT64, "element 0 must be an integer, got null"),
        ("[null]", Datatype.FP32, "element 0 must be a number, got null"),
        ('[1.5, "2"]', Datatype.FP32, "element 1 must be a number, got a string"),
        ("[{}]", Datatype.FP64, "element 0 must be a number, got an object"),
        ("[true]", Datatype.FP32, "element 0 must be a number, got a boolean"),
        ("[true, 0]", Datatype.BOOL, "element 1 must be true or false, got an integer"),
        ("[1]", Datatype.BYTES, "element 0 must be a string, got an integer"),
        ("[1, 256]", Datatype.UINT8, "element 1 (256) is out of range for UINT8"),
        ("[-1]", Datatype.UINT64, "element 0 (-1) is out of range for UINT64"),
        ("[1099511627776]", Datatype.INT32, "element 0 (1099511627776) is out of range for INT32"),
        ("[9223372036854775808]", Datatype.INT64, "out of range for INT64"),
        ("[18446744073709551616]", Datatype.UINT64, "element 0 must be an integer, got a float"),
        ("[-9223372036854775809]", Datatype.INT64, "element 0 must be an integer, got a float"),
        ("[0, 1e39]", Datatype.FP32, "element 1 (1e+39) is out of range for FP32"),
        ("[65520]", Datatype.FP16, "element 0 (65520) is out of range for FP16"),
    ],
)
def test_what_does_not_fit_is_named(data: str, datatype: Datatype, message: str, padding: int) -> None:
    with pytest.raises(InferenceError, match=re.escape(message)) as caught:
        packed(data, datatype, data.count(",") + 1, padding)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert "tensor 'x'" in caught.value.message


@pad
@pytest.mark.parametrize(
    "data",
    [
        "[1, [2]]", "[[1], 2]", "[[1, 2], [3]]", "[[1, 2], [3], [4, 5, 6]]", "[[1], [[2]]]", "[[1, [2]], [3, 4]]",
        "[[[1], [2]], [[3, 4]]]", "[[], [[]]]", "[[1], []]", "[[], [1]]", "[[[1, 2]], [[3], [4]]]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("datatype", [Datatype.INT32, Datatype.FP32, Datatype.FP64])
def test_ragged_rows(data: str, datatype: Datatype, padding: int) -> None:
    with pytest.raises(InferenceError, match="tensor 'x': 'data' is ragged") as caught:
        packed(data, datatype, data.count(",") + 1, padding)
    assert caught.value.code is ErrorCode.INVALID_TENSOR


@pad
@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.BOOL])
def test_another_number_of_elements(datatype: Datatype, padding: int) -> None:
    data = "[true, false]" if datatype is Datatype.BOOL else "[1, 2]"
    with pytest.raises(InferenceError, match="the shape needs 3 elements, 'data' has 2"):
        packed(data, datatype, 3, padding)


def test_bf16_has_no_json_form() -> None:
    with pytest.raises(InferenceError) as caught:
        packed("[1]", Datatype.BF16, 1)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
    tensor = Tensor.from_numpy("x", np.ones(1, ml_dtypes.bfloat16))
    with pytest.raises(InferenceError, match="BF16 has no JSON form") as caught:
        json_values(tensor)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


@pad
def test_nan_and_infinity_are_read(padding: int) -> None:
    data = np.frombuffer(packed("[NaN, Infinity, -Infinity, 1]", Datatype.FP32, 4, padding), "<f4")
    np.testing.assert_array_equal(data, np.array([np.nan, np.inf, -np.inf, 1], "f4"))


@pad
@pytest.mark.parametrize(
    "text",
    [
        "", "{", '{"a":1}x', '{"a":1,}', "{'a':1}", "// c", '{"a":1e999}', '{"a":NaN,"b":1e999}',
        '{"a":"\\ud800"}', '{"a":NaN,"b":"\\ud800"}', '{"a":"NaN",}',
        '{"a":NaN,"b":' + "1" * 5000 + "}", "nan", "undefined",
    ],
)  # fmt: skip
def test_what_is_no_json(text: str, padding: int) -> None:
    with pytest.raises(InferenceError, match="the body is not JSON") as caught:
        parse_json((text + " " * padding).encode(), {"data"})
    assert caught.value.code is ErrorCode.MALFORMED


@pad
@pytest.mark.parametrize("raw", [b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"a":NaN,"b":"\xff"}'])
def test_text_that_is_not_utf8(raw: bytes, padding: int) -> None:
    with pytest.raises(InferenceError) as caught:
        parse_json(raw + b" " * padding, {"data"})
    assert caught.value.code is ErrorCode.MALFORMED


@pad
def test_a_byte_order_mark_and_buffers_of_every_kind(padding: int) -> None:
    text = b'\xef\xbb\xbf{"a":1}' + b" " * padding
    for body in (text, bytearray(text), memoryview(text)):
        assert parse_json(body, {"data"}) == {"a": 1}


@pad
@pytest.mark.parametrize("other", ["1", "NaN", '":"', '"a:b"', '"\\\\"', '"\\":"', '{"c":{"d:":":"}}'])
def test_the_first_of_two_equal_keys_counts(other: str, padding: int) -> None:
    text = '{"id":"a","other":' + other + ',"id":"b","list":[{"data":[1],"data":[2]}]' + " " * padding + "}"
    document = parse_json(text.encode(), {"data"})
    assert document["id"] == "a"
    data = document["list"][0]["data"]
    assert (data if isinstance(data, list) else data.tolist()) == [1]


@pad
def test_the_first_of_many_keys_counts(padding: int) -> None:
    keys = ",".join(f'"k{index}":{index}' for index in range(50))
    assert parse_json(("{" + keys + ',"k1":7' + " " * padding + "}").encode(), {"data"})["k1"] == 1


@pad
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}"), ('{"a":[', "]}")])
@pytest.mark.parametrize("inner", ["1", "NaN", '"]]}}"'])
def test_how_deep_a_document_may_nest(opened: str, closed: str, inner: str, padding: int) -> None:
    most = MAX_DEPTH // len(closed)
    parse_json((opened * most + inner + closed * most + " " * padding).encode(), {"data"})
    for times in (most + 1, 3000):
        text = (opened * times + inner + closed * times + " " * padding).encode()
        with pytest.raises(InferenceError, match="nests deeper than 100 levels") as caught:
            parse_json(text, {"data"})
        assert caught.value.code is ErrorCode.MALFORMED


def test_brackets_in_strings_are_no_levels() -> None:
    text = json.dumps({"a": "[{" * 200, "b": ['\\"' + "]" * 300, "["] * 60})
    assert parse_json(text.encode())["a"] == "[{" * 200


def test_nested_arrays_of_one_tensor_stay_lazy() -> None:
    rows = parsed("[[1, 2], [3, 4], [5, 6]]", LONG)
    numbers = rows.numbers("d", np.dtype("<f8"))
    assert numbers is not None
    assert numbers.tolist() == [1, 2, 3, 4, 5, 6]


@pad
def test_a_nul_does_not_end_a_key(padding: int) -> None:
    found = parse_json(b'{"a\\u0000b":1,"a":2,"c\\u0000":{"data":[3]}}' + b" " * padding, {"data"})
    assert found == {"a\0b": 1, "a": 2, "c\0": {"data": [3]}}


def test_arrays_beyond_what_the_lazy_parser_counts_are_whole() -> None:
    count = 0xFFFFFF + 2
    text = b'{"data":[' + b"1," * (count - 1) + b"7]}"
    data = pack_values("x", Datatype.UINT8, count, parse_json(text, {"data"})["data"])
    assert (len(data), data[0], data[-1]) == (count, 1, 7)


def test_many_keys_and_deep_nesting_take_linear_time() -> None:
    many = "{" + ",".join(f'"k{index}":{index}' for index in range(100_000)) + "}"
    assert len(parse_json(many.encode(), {"data"})) == 100_000
    deep = '{"data":' + "[" * 90 + "1," * 50_000 + "2" + "]" * 90 + "}"
    assert len(pack_values("x", Datatype.INT8, 50_001, parse_json(deep.encode())["data"])) == 50_001


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (Tensor.from_numpy("x", np.array([2**64 - 1], np.uint64)), "[18446744073709551615]"),
        (Tensor.from_numpy("x", np.array([[1, 2], [3, 4]], np.int16)), "[1,2,3,4]"),
        (Tensor("x", Datatype.BOOL, (3,), memoryview(b"\x00\x01\xff")), "[false,true,true]"),
        (Tensor.from_numpy("x", np.zeros((0, 3), np.float32)), "[]"),
        (Tensor.from_numpy("x", np.array(1.5)), "[1.5]"),
        (Tensor.from_numpy("x", np.array(["é", ""], object)), '["é",""]'),
        (Tensor("x", Datatype.FP32, (1,), memoryview(b"\0\0\0\x80?")[1:]), "[1.0]"),  # not aligned
    ],
)
def test_written_values(tensor: Tensor, expected: str) -> None:
    assert write_json(json_values(tensor)).decode() == expected


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[1, 2], [3, 4]], np.int16), "[[1,2],[3,4]]"),
        (np.array([[[True]], [[False]]]), "[[[true]],[[false]]]"),
        (np.array([[1, np.nan], [-np.inf, 2.5]], np.float32), "[[1.0,NaN],[-Infinity,2.5]]"),
        (np.array([["é"], [""]], object), '[["é"],[""]]'),
        (np.array(1.5, np.float16), "1.5"),
        (np.array("a", object), '"a"'),
        (np.zeros((2, 0, 3), np.float32), "[[],[]]"),
        (np.empty((2, 0), object), "[[],[]]"),
        (np.arange(1 << 17, dtype=np.int32).reshape(2, -1), None),
    ],
)
def test_values_in_arrays_of_the_shape(array: Any, expected: str | None) -> None:
    written = write_json(json_values(Tensor.from_numpy("x", array), tokens=True, nested=True))
    assert bytes(written).decode() == (expected or json.dumps(array.tolist(), separators=(",", ":")))


@pytest.mark.parametrize("datatype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_not_written_as_null(datatype: str, value: float) -> None:
    tensor = Tensor.from_numpy("y", np.array([0, 1, value], datatype))
    with pytest.raises(InferenceError, match="tensor 'y': element 2 is .*; use binary data") as caught:
        json_values(tensor)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_bytes_that_are_no_text_are_not_written() -> None:
    tensor = Tensor.from_numpy("y", np.array([b"fine", b"\xff"], object))
    with pytest.raises(InferenceError, match="tensor 'y': element 1 is not UTF-8 text") as caught:
        json_values(tensor)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_what_the_writer_cannot_say() -> None:
    for value in ("\ud800", 2**64):
        with pytest.raises(InferenceError) as caught:
            write_json({"a": value})
        assert caught.value.code is ErrorCode.UNREPRESENTABLE


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)), st.sampled_from([0, LONG]))
def test_every_float_survives(values: list[float], padding: int) -> None:
    tensor = Tensor.from_numpy("x", np.array(values, np.float32))
    text = write_json(json_values(tensor)).decode()
    assert packed(text, Datatype.FP32, len(values), padding) == bytes(tensor.view)


json_documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["data", "a", "b"]), inner),
    max_leaves=20,
)


@given(json_documents, st.sampled_from([0, LONG]))
def test_documents_are_read_as_the_standard_library_reads_them(document: Any, padding: int) -> None:
    text = json.dumps(document) + " " * padding

    def settled(value: Any) -> Any:
        if isinstance(value, LazyArray):
            return value.tolist()
        if isinstance(value, dict):
            return {key: settled(item) for key, item in value.items()}
        return [settled(item) for item in value] if isinstance(value, list) else value

    # compared as text, where NaN equals NaN
    assert repr(settled(parse_json(text.encode(), {"data"}))) == repr(json.loads(text))
