"""grps messages in JSON: what the two servers read and write, held against what was recorded of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

from interlingua.protocols.grps.codec_json import parse_document, read_document
from interlingua.protocols.grps.json_quirks import COMPACT, CPP, PY, REPLY, JsonQuirks
from interlingua.protocols.grps.json_writer import write_message
from interlingua.protocols.grps.message import OK, GenericTensor, GrpsMessage, Kind
from interlingua.protocols.grps.status import failure
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.grps import MESSAGES

RECORDED: Any = json.loads(
    (Path(__file__).parents[2] / "golden" / "grps" / "http_exchanges.json").read_text()
)["standard"]

ECHOED = [
    name
    for name, exchange in RECORDED.items()
    if name.startswith(("str", "empty", "bad", "json", "unknown_f", "camel", "two", "only", "bin", "gt_", "gmap", "nd_"))
    and not name.startswith(("stream", "nd_ret", "empty_body"))
    and "?" not in exchange["request"]["line"]
    and dict(exchange["request"]["headers"]).get("Content-Type") == "application/json"
]  # fmt: skip
"""Requests that the recorded model answers with what it was sent."""

DEVIATIONS: dict[tuple[str, str], str] = {
    ("empty_str", "py"): "a payload may be empty",
    ("nd_scalar_zero", "py"): "a payload may be 0",
    ("gmap_b64_bad", "py"): "what is no base64 is refused, not emptied",
    ("gt_enum_bad_int", "py"): "elements of an unknown datatype are not kept",
    ("gt_camel_flatInt32", "cpp"): "a list that is no field is refused where the tensor has no other",
    ("gt_dtype_field_mismatch", "py"): "lists beside that of the datatype are not kept",
    ("gt_dtype_field_mismatch", "cpp"): "lists beside that of the datatype are not kept",
    ("gt_no_dtype", "py"): "elements of no datatype are not kept",
    ("gt_no_dtype", "cpp"): "elements of no datatype are not kept",
    ("gt_f32_over", "cpp"): "a number beyond the datatype is refused, not infinity",
    ("nd_ragged_depth", "cpp"): "rows of different depth are refused",
    ("nd_ragged_depth2", "cpp"): "rows of different depth are refused",
    ("json_string", "cpp"): "a string as the body is refused, and nothing crashes",
}


def text_of(side: Any) -> str:
    body = side if isinstance(side, str) else side["body"]
    return body if isinstance(body, str) else body["text"]


def echo(body: bytes, quirks: JsonQuirks) -> tuple[int, str]:
    """The code and the text of the answer of a model that gives back what it was sent."""
    try:
        message = read_document(parse_document(body, quirks), quirks)
    except InferenceError as error:
        return failure(error, quirks.name).code, ""
    message.status = OK
    if message.kind is Kind.NDARRAY:
        message.kind = Kind.GTENSORS
    return 200, write_message(message, quirks).decode()


@pytest.mark.parametrize("quirks", [PY, CPP], ids=lambda quirks: quirks.name)
@pytest.mark.parametrize("name", ECHOED)
def test_recorded_requests_are_read_and_written_as_they_were(name: str, quirks: JsonQuirks) -> None:
    exchange = RECORDED[name]
    code, text = echo(text_of(exchange["request"]).encode(), quirks)
    recorded = text_of(exchange[quirks.name])
    try:
        expected = json.loads(recorded)["status"]["code"]
    except ValueError:
        expected = None
    agrees = code == expected and (code != 200 or text == recorded)
    assert agrees is ((name, quirks.name) not in DEVIATIONS), (text, recorded)


def test_enough_was_recorded() -> None:
    assert len(ECHOED) > 60
    assert {name for name, _ in DEVIATIONS} <= set(ECHOED)


def floats(*values: float) -> Any:
    return np.array(values, "<f4")


ANSWERS = {
    "out_nan": GrpsMessage(
        Kind.GTENSORS, status=OK, tensors=(GenericTensor("f", 7, (3,), floats(np.nan, np.inf, -np.inf)),)
    ),
    "out_empty_msg": GrpsMessage(status=OK),
    "out_model_field": GrpsMessage(Kind.STR_DATA, "m-1", OK, str_data="model field set"),
    "nd_ret": GrpsMessage(
        Kind.NDARRAY, status=OK, tensors=(GenericTensor("", 7, (2, 3), floats(1, 2, 3, 4, 5, 6)),)
    ),
    "nd_depth40_ret": GrpsMessage(
        Kind.NDARRAY, status=OK, tensors=(GenericTensor("", 7, (1,) * 40, floats(1)),)
    ),
}


@pytest.mark.parametrize("quirks", [PY, CPP], ids=lambda quirks: quirks.name)
@pytest.mark.parametrize("name", ANSWERS)
def test_recorded_answers(name: str, quirks: JsonQuirks) -> None:
    assert write_message(ANSWERS[name], quirks).decode() == text_of(RECORDED[name][quirks.name])


@pytest.mark.parametrize("quirks", [PY, CPP], ids=lambda quirks: quirks.name)
def test_all_datatypes_as_recorded_but_for_the_form_of_exponents(quirks: JsonQuirks) -> None:
    recorded = text_of(RECORDED["out_all_dtypes"][quirks.name])
    message = read_document(parse_document(recorded.encode(), REPLY), REPLY)
    assert [len(tensor.flat) for tensor in message.tensors] == [3, 3, 3, 3, 3, 4, 5, 4, 2, 1, 0]
    assert write_message(message, quirks).decode() == recorded.replace("1e-07", "1e-7")


# --- what each of them reads


def body(dtype: str, field: str, values: str, **others: str) -> bytes:
    members = "".join(f', "{key}": {value}' for key, value in others.items())
    return f'{{"gtensors": {{"tensors": [{{"name": "a", "dtype": "{dtype}", "{field}": {values}{members}}}]}}}}'.encode()


def flat(document: bytes, quirks: JsonQuirks) -> list[Any] | None:
    """The elements of the only tensor; None where it is refused."""
    try:
        (tensor,) = read_document(parse_document(document, quirks), quirks).tensors
    except InferenceError:
        return None
    return list(tensor.flat)


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize(
    ("dtype", "field", "values", "py", "cpp"),
    [
        ("DT_INT32", "flat_int32", "[1, -2]", [1, -2], [1, -2]),
        ("DT_INT32", "flatInt32", "[1]", [1], None),
        ("DT_INT32", "flat_int32", '["5"]', [5], None),
        ("DT_INT32", "flat_int32", "[5.0]", [5], None),
        ("DT_INT32", "flat_int32", "[5.5]", None, None),
        ("DT_INT32", "flat_int32", "[3000000000]", None, None),
        ("DT_INT32", "flat_int32", "[true]", None, None),
        ("DT_INT32", "flat_int32", "[null]", None, None),
        ("DT_INT32", "flat_int32", "[[1]]", None, None),
        ("DT_INT32", "flat_int32", "null", [], []),
        ("DT_INT32", "flat_int32", "1", None, None),
        ("DT_UINT8", "flat_uint8", "[256]", [256], [256]),
        ("DT_UINT8", "flat_uint8", "[-1]", None, None),
        ("DT_UINT8", "flat_uint8", '"AAEC"', None, None),
        ("DT_INT8", "flat_int8", "[300]", [300], [300]),
        ("DT_INT64", "flat_int64", '[1, "9007199254740993", -9223372036854775808]', [1, 2**53 + 1, -(2**63)], [1, 2**53 + 1, -(2**63)]),
        ("DT_INT64", "flat_int64", "[9223372036854775808]", None, None),
        ("DT_INT64", "flat_int64", '["x"]', None, None),
        ("DT_FLOAT32", "flat_float32", "[1, 2.5]", [1, 2.5], [1, 2.5]),
        ("DT_FLOAT32", "flat_float32", '["1.5"]', [1.5], None),
        ("DT_FLOAT32", "flat_float32", '["Infinity", "-Infinity"]', [np.inf, -np.inf], [np.inf, -np.inf]),
        ("DT_FLOAT32", "flat_float32", '[1, "infinity", "-INFINITY"]', None, [1, np.inf, -np.inf]),
        ("DT_FLOAT16", "flat_float16", '["Infinity", 0.5]', [np.inf, 0.5], [np.inf, 0.5]),
        ("DT_FLOAT64", "flat_float64", '["-infinity", 2]', None, [-np.inf, 2]),
        ("DT_INT32", "flat_int32", '["NaN"]', None, None),
        ("DT_FLOAT32", "flat_float32", '["1e999"]', None, None),
        ("DT_FLOAT32", "flat_float32", '["inf"]', None, None),
        ("DT_FLOAT32", "flat_float32", "[NaN]", None, None),
        ("DT_FLOAT32", "flat_float32", "[1e39]", None, None),
        ("DT_FLOAT64", "flat_float64", "[1e39, 0.1]", [1e39, 0.1], [1e39, 0.1]),
        ("DT_FLOAT64", "flat_double", "[1.0]", None, None),
        ("DT_FLOAT64", "flat_double", "[]", [], []),
        ("DT_FLOAT64", "flat_float32", "[1.0]", [], []),
        ("DT_STRING", "flat_string", '["a", "é", ""]', ["a", "é", ""], ["a", "é", ""]),
        ("DT_STRING", "flat_string", "[1]", None, None),
    ],
)  # fmt: skip
def test_lists(
    dtype: str, field: str, values: str, py: list[Any] | None, cpp: list[Any] | None, long: bool
) -> None:
    # long documents go through another parser
    others = {"padding": json.dumps("x" * 4000)} if long else {}
    document = body(dtype, field, values, **others)
    assert flat(document, PY) == py
    assert flat(document, CPP) == cpp
    assert flat(document, REPLY) == py


@pytest.mark.parametrize("quirks", [CPP, COMPACT], ids=lambda quirks: str(quirks.name))
@pytest.mark.parametrize("word", ["NaN", "nan", "NAN"])
def test_quoted_nan_is_a_number_to_the_cpp_server(word: str, quirks: JsonQuirks) -> None:
    """brpc's json2pb compares the words without their case, in lists and in maps; "1.5" and "inf" stay text."""
    for dtype in ("float16", "float32", "float64"):
        values = flat(body(f"DT_{dtype.upper()}", f"flat_{dtype}", f'[1.5, "{word}"]'), quirks)
        assert values is not None and values[0] == 1.5 and np.isnan(values[1])
    text = f'{{"gmap": {{"s_f": {{"k": "{word}"}}, "s_d": [{{"key": "k", "value": "{word}"}}]}}}}'
    gmap = read_document(parse_document(text.encode(), quirks), quirks).gmap
    assert np.isnan(gmap["s_f"]["k"]) and np.isnan(gmap["s_d"]["k"])
    for other in ("1.5", "inf", "-nan", "+Infinity", " NaN", "NaN\\u0000"):
        with pytest.raises(InferenceError, match=r"flat_float32 of tensor 'a' must have numbers") as refused:
            read_document(parse_document(body("DT_FLOAT32", "flat_float32", f'["{other}"]'), quirks), quirks)
        assert refused.value.code is ErrorCode.MALFORMED


@pytest.mark.parametrize("quirks", [PY, CPP, COMPACT, REPLY], ids=lambda quirks: quirks.name)
def test_a_list_that_is_no_field_is_refused_with_the_name_of_the_field(quirks: JsonQuirks) -> None:
    """The interface document's sample has ``flat_double``; both original servers answer 200 and empty the
    tensor."""
    for slip, dtype, field in (
        ("flat_double", "DT_FLOAT64", "flat_float64"),
        ("flat_float", "DT_FLOAT32", "flat_float32"),
    ):
        with pytest.raises(
            InferenceError, match=f"tensor: a data is empty: {slip} is no field, did you mean {field}"
        ) as caught:
            read_document(parse_document(body(dtype, slip, "[1.0]"), quirks), quirks)
        assert caught.value.code is ErrorCode.INVALID_TENSOR
        # members that are no lists are ignored, as ever, and so is such a list beside the right one
        (tensor,) = read_document(
            parse_document(body(dtype, field, "[1.0]", **{slip: "[2.0]", "more": "3"}), quirks), quirks
        ).tensors
        assert tensor.flat.tolist() == [1.0]


def test_a_zero_keeps_its_sign() -> None:
    text = b'{"gtensors": {"tensors": [{"name": " -0,", "dtype": 7, "flat_float32": [-0, 1e-0, -0 ,0]}]}}'
    (tensor,) = read_document(parse_document(text, REPLY), REPLY).tensors
    assert tensor.name == " -0,"
    assert np.signbit(tensor.flat).tolist() == [True, False, True, False]


@pytest.mark.parametrize("quirks", [PY, CPP, COMPACT])
def test_protobuf_reads_the_ends_of_the_ranges(quirks: JsonQuirks) -> None:
    """Its reader refuses the shortest text of the largest FP32, which as 64 bits is a hair above it."""
    limits = np.finfo(np.float32)
    flat = np.array([limits.max, limits.min, limits.smallest_subnormal, np.inf, 0.1], np.float32)
    message = GrpsMessage(Kind.GTENSORS, tensors=(GenericTensor("f", 7, (5,), flat),))
    told = json_format.Parse(write_message(message, quirks), MESSAGES["grps.protos.v1.GrpsMessage"]())
    (tensor,) = told.gtensors.tensors
    assert np.array(tensor.flat_float32, np.float32).tobytes() == flat.tobytes()


def test_long_lists_are_read_at_once() -> None:
    many = list(range(2000))
    for dtype in ("int32", "int64", "uint8", "float32", "float64", "float16"):
        document = body(f"DT_{dtype.upper()}", f"flat_{dtype}", json.dumps(many))
        for quirks in (PY, CPP):
            assert flat(document, quirks) == many
            assert flat(document.replace(b"1999]", b"1999, null]"), quirks) is None
            assert flat(document.replace(b"1999]", b"[1999]]"), quirks) is None


@pytest.mark.parametrize(
    ("text", "py", "cpp"),
    [
        ('{"str_data": "a", "str_data": "b"}', "b", "a"),
        ('\ufeff{"str_data": "a"}', "a", None),
        ('{"str_data": null, "gtensors": null}', None, ""),
        ('{"str_data": "a", "bin_data": "AAEC"}', None, "a"),
        ('{"str_data": "a", "ndarray": [1]}', None, None),
        ('{"strData": "a"}', None, None),
        ('{"str_data": 5}', None, None),
        ('{"str_data": "a", "model": 5}', None, None),
        ('{"str_data": "a", "status": 5}', "a", "a"),
        ('{"str_data": "a", "zzz": [{}]}', "a", "a"),
        ('{"bin_data": "AAEC"}', None, None),
        ("[1]", None, None),
        ("{}", None, None),
    ],
)
def test_documents(text: str, py: str | None, cpp: str | None) -> None:
    for quirks, expected in ((PY, py), (CPP, cpp)):
        try:
            found = read_document(parse_document(text.encode(), quirks), quirks).str_data
        except InferenceError:
            assert expected is None
        else:
            assert found == expected


@pytest.mark.parametrize(
    ("value", "py", "cpp"),
    [
        ('{"s_i64": {"k": "9007199254740993"}}', {"s_i64": {"k": 2**53 + 1}}, {"s_i64": {"k": 2**53 + 1}}),
        ('{"s_b": {"k": "_-8"}}', {"s_b": {"k": b"\xff\xef"}}, None),
        ('{"s_b": {"k": "/+8="}}', {"s_b": {"k": b"\xff\xef"}}, {"s_b": {"k": b"\xff\xef"}}),
        ('{"s_s": [{"key": "k", "value": "v"}]}', None, {"s_s": {"k": "v"}}),
        ('{"sS": {"k": "v"}}', {"s_s": {"k": "v"}}, {}),
        ('{"sS": {"k": "v"}, "s_s": {}}', None, {}),
        ('{"s_i32": {"k": 2147483648}}', None, None),
        ('{"s_i32": {"k": [1]}}', None, None),
        ('{"s_f": {"k": "-Infinity"}}', {"s_f": {"k": -np.inf}}, {"s_f": {"k": -np.inf}}),
        ('{"s_d": {"k": "INFINITY"}}', None, {"s_d": {"k": np.inf}}),
        ('{"s_d": {"k": "1.5"}}', {"s_d": {"k": 1.5}}, None),
        ('{"s_t": {"k": {"dtype": "DT_FLOAT32"}}}', {}, {}),
        ("[]", None, None),
    ],
)
def test_gmaps(value: str, py: Any, cpp: Any) -> None:
    for quirks, expected in ((PY, py), (CPP, cpp)):
        try:
            found = read_document(parse_document(f'{{"gmap": {value}}}'.encode(), quirks), quirks).gmap
        except InferenceError:
            assert expected is None
        else:
            assert found == expected


@pytest.mark.parametrize("long", [0, 600], ids=["short", "long"])
@pytest.mark.parametrize(
    ("value", "shape", "py", "cpp"),
    [
        ("[[1, 2.5], [3, 4]]", (2, 2), True, True),
        ("7", (), True, True),
        ("[[[1]], [[2]]]", (2, 1, 1), True, True),
        ("[18446744073709551616]", (1,), True, True),
        ("[[]]", (1, 0), True, False),
        ("[]", (0,), True, False),
        ("[true, 2]", (2,), True, False),
        ("[NaN]", (1,), True, False),
        ('["NaN", 1]', (2,), True, True),
        ("[[1, 2], [3]]", (), False, False),
        ("[[1, 2], 3]", (), False, False),
        ("[3, [1, 2]]", (), False, False),
        ('["1"]', (), False, False),
        ("[null]", (), False, False),
        ('["NaN", {}]', (), False, False),
        ("[1e39]", (), False, False),
        ("{}", (), False, False),
        ('"abc"', (), False, False),
        ("[[1], [{}]]", (), False, False),
    ],
)
def test_ndarrays(value: str, shape: tuple[int, ...], py: bool, cpp: bool, long: int) -> None:
    document = f'{{"padding": "{"x" * long * 10}", "ndarray": {value}}}'.encode()
    for quirks, read in ((PY, py), (CPP, cpp)):
        try:
            (tensor,) = read_document(parse_document(document, quirks), quirks).tensors
        except InferenceError:
            assert not read
        else:
            assert read
            assert tensor.shape == shape
            assert tensor.flat.dtype == np.dtype("<f4")
            assert tensor.flat.size == np.prod(shape)


@pytest.mark.parametrize("quirks", [PY, CPP], ids=lambda quirks: quirks.name)
def test_large_ndarrays(quirks: JsonQuirks) -> None:
    array = np.arange(24 * 30 * 3, dtype="<f4").reshape(24, 30, 3)
    text = json.dumps({"ndarray": array.tolist()}).encode()
    (tensor,) = read_document(parse_document(text, quirks), quirks).tensors
    assert tensor.shape == array.shape
    assert (tensor.flat == array.ravel()).all()
    for ragged in (text.replace(b"0.0, ", b"", 1), text.replace(b"0.0,", b"[0.0],", 1)):
        with pytest.raises(InferenceError, match="size not match"):
            read_document(parse_document(ragged, quirks), quirks)


# --- what each of them writes


@pytest.mark.parametrize("indent", [1, 2])
@pytest.mark.parametrize(
    "shape", [(), (4,), (2, 2), (1, 1, 1), (2, 3, 1, 2), (0,), (2, 0), (0, 3), (2, 1, 0)]
)
def test_ndarrays_are_laid_out_as_json_has_it(shape: tuple[int, ...], indent: int) -> None:
    array = np.arange(np.prod(shape), dtype="<f4").reshape(shape) + np.float32(0.1)
    tensor = GenericTensor("", 7, shape, array.ravel())
    expected = {"model": "", "ndarray": array.astype(float).tolist()}
    text = write_message(GrpsMessage(Kind.NDARRAY, tensors=(tensor,)), PY, indent)
    assert text.decode() == json.dumps(expected, indent=indent)
    compact = write_message(GrpsMessage(Kind.NDARRAY, tensors=(tensor,)), COMPACT)
    assert compact.decode() == json.dumps({"ndarray": expected["ndarray"]}, separators=(",", ":"))


def test_an_ndarray_of_what_json_has_no_numbers_for() -> None:
    tensor = GenericTensor("", 7, (1, 4), floats(np.nan, np.inf, -np.inf, 1.5))
    text = write_message(GrpsMessage(Kind.NDARRAY, tensors=(tensor,)), CPP)
    assert json.loads(text)["ndarray"] == [["NaN", "Infinity", "-Infinity", 1.5]]


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (GenericTensor("o", 7, (1,) * 65, floats(1)), "'o' has 65 dimensions"),
        (GenericTensor("o", 7, (2**31, 0), floats()), "too many arrays"),
    ],
)
def test_ndarrays_that_cannot_be(tensor: GenericTensor, words: str) -> None:
    with pytest.raises(InferenceError, match=words) as caught:
        write_message(GrpsMessage(Kind.NDARRAY, tensors=(tensor,)), PY)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


@pytest.mark.parametrize("quirks", [PY, CPP, COMPACT], ids=lambda quirks: quirks.name)
def test_text_that_is_no_unicode_is_not_written(quirks: JsonQuirks) -> None:
    with pytest.raises(InferenceError) as caught:
        write_message(GrpsMessage(Kind.STR_DATA, str_data="\ud800"), quirks)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


@pytest.mark.parametrize("quirks", [PY, CPP, COMPACT], ids=lambda quirks: quirks.name)
@pytest.mark.parametrize("kind", [Kind.GTENSORS, Kind.NDARRAY], ids=lambda kind: kind.value)
def test_signalling_nans_are_nans(quirks: JsonQuirks, kind: Kind) -> None:
    signalling = np.array([0x7F800001, 0xFF800001], "<u4").view("<f4")
    text = write_message(GrpsMessage(kind, tensors=(GenericTensor("a", 7, (2,), signalling),)), quirks)
    assert text.count(b'"NaN"') == 2
