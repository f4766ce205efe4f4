"""grps messages to and from the IR: binding, sizes, ranges, widening, the form of answers, statuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interlingua.protocols.grps.codec import decode_request, decode_response, encode_request, encode_response
from interlingua.protocols.grps.message import OK, GenericTensor, GrpsMessage, Kind, Status, StatusFlag
from interlingua.protocols.grps.status import check, failure
from interlingua.protocols.grps.tensors import WIDENED, read_tensor, write_tensor
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
)

NOTHING = Signature((), ())


def spec(name: str, datatype: Datatype, *shape: int) -> TensorSpec:
    return TensorSpec(name, datatype, shape)


def floats(name: str, *values: float) -> GenericTensor:
    return GenericTensor(name, 7, (len(values),), np.array(values, "<f4"))


def gtensors(*tensors: GenericTensor) -> GrpsMessage:
    return GrpsMessage(Kind.GTENSORS, tensors=tensors)


def texts(name: str, *elements: bytes, shape: tuple[int, ...] | None = None) -> Tensor:
    array = np.array(elements, object)
    return Tensor.from_numpy(name, array if shape is None else array.reshape(shape), Datatype.BYTES)


def refused(code: ErrorCode, words: str, call: Any, *arguments: Any, **named: Any) -> None:
    with pytest.raises(InferenceError) as caught:
        call(*arguments, **named)
    assert caught.value.code is code, caught.value.message
    assert words in caught.value.message


# --- binding


def test_gtensors_bind_by_name() -> None:
    signature = Signature((spec("a", Datatype.FP32, -1), spec("b", Datatype.FP32, -1)), ())
    request, _ = decode_request(
        gtensors(floats("b", 1), floats("a", 2, 3)), signature, model="m", version="1"
    )
    assert (request.model, request.version, request.outputs) == ("m", "1", None)
    assert {tensor.name: tensor.numpy().tolist() for tensor in request.inputs} == {"b": [1], "a": [2, 3]}


def test_gtensors_without_names_bind_by_order() -> None:
    signature = Signature((spec("a", Datatype.FP32, -1), spec("b", Datatype.FP32, -1)), ())
    request, _ = decode_request(gtensors(floats("", 1), floats("", 2)), signature)
    assert [tensor.name for tensor in request.inputs] == ["a", "b"]
    refused(
        ErrorCode.INVALID_TENSOR,
        "only 2 inputs",
        decode_request,
        gtensors(floats("", 1), floats("", 2), floats("", 3)),
        signature,
    )
    undeclared, _ = decode_request(gtensors(floats("", 1)), NOTHING)
    assert undeclared.inputs[0].name == ""
    several, _ = decode_request(gtensors(floats("", 1), floats("", 2)), NOTHING)
    assert [tensor.name for tensor in several.inputs] == ["0", "1"]
    assert [tensor.name for tensor in encode_request(several).tensors] == ["", ""]


def test_names_that_do_not_tell_tensors_apart() -> None:
    refused(ErrorCode.INVALID_TENSOR, "tensor: a duplicated", decode_request, gtensors(floats("a", 1), floats("a", 1)), NOTHING)  # fmt: skip
    for mixed in (gtensors(floats("a", 1), floats("", 1)), gtensors(floats("", 1), floats("a", 1))):
        refused(ErrorCode.INVALID_TENSOR, "all set or all empty", decode_request, mixed, NOTHING)


def test_an_ndarray_is_the_first_input_in_fp32() -> None:
    message = GrpsMessage(Kind.NDARRAY, tensors=(floats("", 1, 2),))
    request, form = decode_request(message, Signature((spec("x", Datatype.FP32, -1),), ()))
    assert request.inputs[0].name == "x"
    assert form.request.kind is Kind.GTENSORS and not form.ndarray
    other = Signature((spec("x", Datatype.INT64, -1),), ())
    refused(ErrorCode.UNREPRESENTABLE, "'x' is INT64", decode_request, message, other)


@pytest.mark.parametrize(
    ("message", "element"),
    [
        (GrpsMessage(Kind.STR_DATA, str_data="é"), "é".encode()),
        (GrpsMessage(Kind.BIN_DATA, bin_data=memoryview(b"\0\xff")), b"\0\xff"),
    ],
)
def test_text_and_bytes_are_one_element(message: GrpsMessage, element: bytes) -> None:
    signature = Signature((spec("x", Datatype.BYTES, -1, 1), spec("y", Datatype.FP32, 1)), ())
    request, form = decode_request(message, signature)
    assert request.inputs == (texts("x", element, shape=(1, 1)),)
    assert form.request.kind is message.kind
    undeclared, _ = decode_request(message, NOTHING)
    assert undeclared.inputs == (texts(message.kind.value, element),)
    named = Signature((spec("y", Datatype.FP32, 1), spec(message.kind.value, Datatype.BYTES)), ())
    assert decode_request(message, named)[0].inputs == (texts(message.kind.value, element, shape=()),)
    numbers = Signature((spec("y", Datatype.FP32, 1),), ())
    refused(ErrorCode.UNREPRESENTABLE, "'y' is FP32", decode_request, message, numbers)


# --- tensors


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (GenericTensor("in2", 8, (3, 3), np.empty(0)), "in2 data is empty"),
        (GenericTensor("a", 7, (), np.empty(0, "<f4")), "a data is empty"),
        (
            GenericTensor("a", 7, (2, 2), np.ones(3, "<f4")),
            "tensor: a size not match, shape: [2, 2], expected size: 4, actual size: 3",
        ),
        (GenericTensor("a", 9, (1,), ["x", "y"]), "expected size: 1, actual size: 2"),
        (GenericTensor("a", 0, (1,), np.ones(1)), "a has unsupported data type: 0"),
        (GenericTensor("a", 42, (1,), np.ones(1)), "a has unsupported data type: 42"),
        (GenericTensor("a", 1, (2,), np.array([255, 256], "<u4")), "'a': element 1 (256) is out of range for UINT8"),
        (GenericTensor("a", 2, (1,), np.array([300], "<i4")), "300"),
        (GenericTensor("a", 2, (1,), np.array([-129], "<i4")), "-129"),
        (GenericTensor("a", 3, (1,), np.array([32768], "<i4")), "32768"),
        (GenericTensor("a", 6, (1,), np.array([70000], "<f4")), "out of range for FP16"),
        (GenericTensor("a", 7, (2**32 - 1, 2**32 - 1), np.empty(0, "<f4")), "more elements"),
    ],
)  # fmt: skip
def test_tensors_that_contradict_themselves(tensor: GenericTensor, words: str) -> None:
    refused(ErrorCode.INVALID_TENSOR, words, read_tensor, tensor, tensor.name, None)


def test_halves_are_rounded_and_keep_what_is_not_finite() -> None:
    given = np.array([0.1, 1, 65504, -0.0, 1e-8, np.inf, -np.inf, np.nan], "<f4")
    tensor = read_tensor(GenericTensor("a", 6, (8,), given), "a", None)
    assert tensor.numpy().tobytes() == given.astype("<f2").tobytes()


def test_every_half_comes_back_bit_for_bit() -> None:
    every = np.arange(2**16, dtype="<u2")
    tensor = Tensor("a", Datatype.FP16, (2**16,), memoryview(every.tobytes()))
    written = write_tensor(tensor)
    assert written.flat.dtype == np.dtype("<f4")
    assert read_tensor(written, "a", None) == tensor


@pytest.mark.parametrize("narrow", WIDENED)
def test_widening_is_undone_where_the_model_says_so(narrow: Datatype) -> None:
    array = np.array([0, 1, 1], narrow.dtype)
    tensor = Tensor.from_numpy("a", array, narrow)
    written = write_tensor(tensor)
    assert read_tensor(written, "a", spec("a", narrow, -1)) == tensor
    plain = read_tensor(written, "a", spec("a", WIDENED[narrow], -1))
    assert plain.datatype is WIDENED[narrow]
    assert plain.numpy().tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("narrow", "dtype", "value"),
    [
        (Datatype.BOOL, 1, np.array([2], "<u4")),
        (Datatype.UINT16, 4, np.array([-1], "<i4")),
        (Datatype.UINT32, 5, np.array([2**32], "<i8")),
        (Datatype.BF16, 7, np.array([0.1], "<f4")),
    ],
)
def test_what_the_narrow_type_cannot_hold(narrow: Datatype, dtype: int, value: Any) -> None:
    tensor = GenericTensor("a", dtype, (1,), value)
    refused(ErrorCode.INVALID_TENSOR, f"out of range for {narrow.value}", read_tensor, tensor, "a", spec("a", narrow, 1))  # fmt: skip


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (Tensor.from_numpy("a", np.zeros(1, "<u8")), "datatype UINT64"),
        (texts("a", b"x", b"\xff"), "an element, 1, that is not UTF-8"),
        (Tensor("a", Datatype.FP32, (2**32, 0), memoryview(b"")), "beyond 32 bits"),
    ],
)
def test_what_grps_cannot_carry(tensor: Tensor, words: str) -> None:
    refused(ErrorCode.UNREPRESENTABLE, words, write_tensor, tensor)


# --- answers


def answered(kind: Kind, *outputs: Tensor, ndarray: bool = False, first: bool = False) -> GrpsMessage:
    _, form = decode_request(GrpsMessage(kind), NOTHING, return_ndarray=ndarray, first_tensor_only=first)
    return encode_response(form, InferResponse("m", outputs))


@pytest.mark.parametrize(
    ("asked", "outputs", "kind"),
    [
        (Kind.STR_DATA, (texts("o", b"x"),), Kind.STR_DATA),
        (Kind.STR_DATA, (texts("o", b"x", shape=(1, 1)),), Kind.STR_DATA),
        (Kind.STR_DATA, (texts("o", b"\xff"),), Kind.BIN_DATA),
        (Kind.BIN_DATA, (texts("o", b"x"),), Kind.BIN_DATA),
        (Kind.STR_DATA, (texts("o", b"x", b"y"),), Kind.GTENSORS),
        (Kind.STR_DATA, (texts("o", b"x"), texts("p", b"y")), Kind.GTENSORS),
        (Kind.BIN_DATA, (Tensor.from_numpy("o", np.zeros(1, "<f4")),), Kind.GTENSORS),
        (Kind.GTENSORS, (texts("o", b"x"),), Kind.GTENSORS),
        (Kind.STR_DATA, (), Kind.NOTHING),
    ],
)
def test_the_form_of_an_answer(asked: Kind, outputs: tuple[Tensor, ...], kind: Kind) -> None:
    message = answered(asked, *outputs)
    assert message.kind is kind
    assert message.status == OK
    found, told = decode_response(message, Signature((), (spec("o", Datatype.BYTES, 1),)))
    assert len(found) == len(outputs) and told.kind is kind


def test_an_answer_as_an_ndarray() -> None:
    one, two = Tensor.from_numpy("o", np.ones(2, "<f4")), Tensor.from_numpy("p", np.ones(2, "<f8"))
    assert answered(Kind.GTENSORS, one, ndarray=True).tensors[0].flat.tolist() == [1, 1]
    assert answered(Kind.GTENSORS, one, two, ndarray=True, first=True).kind is Kind.NDARRAY
    for outputs, words in (
        ((one, two), "NDArray only support one tensor"),
        ((two,), "NDArray only support float32 ('p' is FP64)"),
        ((texts("t", b"x"),), "No tensors in output. Cannot convert to ndarray."),
        ((), "No tensors in output. Cannot convert to ndarray."),
    ):
        refused(ErrorCode.UNREPRESENTABLE, words, answered, Kind.GTENSORS, *outputs, ndarray=True)
    refused(ErrorCode.UNREPRESENTABLE, "No float32 tensors in output.", answered, Kind.GTENSORS, two, one, ndarray=True, first=True)  # fmt: skip


# --- as a client


def test_text_and_bytes_go_as_such_by_their_name() -> None:
    assert encode_request(InferRequest("m", (texts("str_data", b"x"),))) == GrpsMessage(
        Kind.STR_DATA, str_data="x"
    )
    assert encode_request(InferRequest("m", (texts("bin_data", b"\xff"),))).bin_data == b"\xff"
    assert encode_request(InferRequest("m", (texts("other", b"x"),))).kind is Kind.GTENSORS
    refused(ErrorCode.UNREPRESENTABLE, "'str_data'", encode_request, InferRequest("m", (texts("str_data", b"\xff"),)))  # fmt: skip


@pytest.mark.parametrize("code", ErrorCode)
@pytest.mark.parametrize("flavor", ["py", "cpp"])
def test_errors_keep_their_words(code: ErrorCode, flavor: str) -> None:
    status = failure(InferenceError(code, "no such thing"), flavor)
    assert status.flag == StatusFlag.FAILURE
    with pytest.raises(InferenceError, match="no such thing"):
        check(GrpsMessage(status=status))


@pytest.mark.parametrize("flavor", ["py", "cpp"])
def test_no_client_sees_where_in_a_models_code_it_failed(flavor: str) -> None:
    text = "message: ValueError: no\n\nAt:\n  /models/m/1/model.py(8): execute\n"
    assert failure(InferenceError(ErrorCode.MODEL_FAILED, text), flavor).msg == "message: ValueError: no"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status(500, "[ExecutorException] Not found model: nope-1", 2), ErrorCode.NOT_FOUND),
        (Status(500, "Traceback …\nRuntimeError: Model nope-1.0.0 not found.\n", 2), ErrorCode.NOT_FOUND),
        (Status(500, "boom", 2), ErrorCode.MODEL_FAILED),
        (Status(503, "Service Unavailable", 2), ErrorCode.UNAVAILABLE),
        (Status(418, "", 2), ErrorCode.BAD_UPSTREAM),
        (Status(404, "Not Found", 0), ErrorCode.NOT_FOUND),
        (Status(200, "", 2), ErrorCode.BAD_UPSTREAM),
    ],
)
def test_what_a_status_means(status: Status, code: ErrorCode) -> None:
    with pytest.raises(InferenceError) as caught:
        check(GrpsMessage(status=status))
    assert caught.value.code is code
    assert caught.value.message


@pytest.mark.parametrize("status", [None, OK, Status(), Status(200, "OK", 0), Status(0, "", 1)])
def test_what_is_no_failure(status: Status | None) -> None:
    check(GrpsMessage(status=status))
