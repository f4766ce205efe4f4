"""Inference requests as a server reads them: JSON, binary data, shared memory, and what is refused."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.oip.codec_http import OipHttpReplyForm
from interlingua.protocols.wire import HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    TensorSpec,
)
from tests.protocols.oip.http_exchange import decoded, opened, post

FP32 = TensorSpec("x", Datatype.FP32, (-1,))
ANY = Signature((FP32,), (TensorSpec("y", Datatype.FP32, (-1,)),))
LENGTH = "inference-header-content-length"


def tensor(data: Any = None, shape: Any = (2,), datatype: Any = "FP32", **more: Any) -> dict[str, Any]:
    entry = {"name": "x", "shape": shape, "datatype": datatype, **more}
    return entry if data is None else {**entry, "data": data}


def binary(size: Any, **more: Any) -> dict[str, Any]:
    return tensor(parameters={"binary_data_size": size}, **more)


def request(*inputs: Any, tail: bytes = b"", length: int | str | None = None, **more: Any) -> HttpRequest:
    header = json.dumps({"inputs": inputs, **more}).encode()
    if length is None and tail:
        length = len(header)
    return post(header + tail, {} if length is None else {LENGTH: str(length)})


def refusal(message: HttpRequest, signature: Signature = ANY) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        decoded(message, signature)
    return caught.value


def test_everything_that_json_can_ask() -> None:
    asked, form = decoded(
        request(
            tensor([1, 2.5]),
            tensor(["é", ""], (2, 1), "BYTES", name="z", unknown=1),
            id="mine",
            parameters={"sequence_id": "s", "sequence_end": True, "priority": 1, "timeout": 9, "own": 1.5},
            outputs=[{"name": "y", "parameters": {"binary_data": True}}, {"name": "w"}],
            unknown={"data": [1]},
        ),
        ANY,
    )
    assert (asked.model, asked.id, asked.priority, asked.timeout_us) == ("m", "mine", 1, 9)
    assert asked.sequence == Sequence("s", end=True)
    assert asked.parameters == {"own": 1.5}
    assert asked.outputs == (RequestedOutput("y"), RequestedOutput("w"))
    assert form == OipHttpReplyForm("mine", frozenset({"y"}))
    first, second = asked.inputs
    np.testing.assert_array_equal(first.numpy(), np.array([1, 2.5], np.float32))
    assert (second.shape, second.elements()) == ((2, 1), ["é".encode(), b""])


@pytest.mark.parametrize(
    "more", [{}, {"outputs": []}, {"outputs": None, "id": None, "parameters": None}, {"id": ""}]
)
def test_what_is_absent(more: dict[str, Any]) -> None:
    asked, form = decoded(request(tensor([1, 2]), **more), ANY)
    assert (asked.outputs, asked.id, asked.parameters, asked.sequence) == (None, "", {}, None)
    assert form == OipHttpReplyForm()


def test_binary_data_is_cut_without_a_copy() -> None:
    one, two = np.arange(2, dtype="<f4"), np.arange(3, dtype="<i8")
    message = request(
        binary(8),
        tensor([True], (1,), "BOOL", name="flag"),
        binary(24, shape=(3,), datatype="INT64", name="z"),
        binary(0, shape=(0,), name="empty"),
        tail=one.tobytes() + two.tobytes(),
    )
    asked, _ = decoded(message, ANY)
    first, flag, last, empty = asked.inputs
    np.testing.assert_array_equal(first.numpy(), one)
    np.testing.assert_array_equal(last.numpy(), two)
    assert (bytes(flag.view), bytes(empty.view)) == (b"\x01", b"")
    assert all(part.view.obj is message.body for part in (first, last))
    assert first.view.readonly


def test_the_header_may_count_the_whole_body_or_be_absent() -> None:
    body = json.dumps({"inputs": [tensor([1, 2])]}).encode()
    for headers in ({}, {LENGTH: str(len(body))}):
        asked, _ = decoded(post(body, headers), ANY)
        assert asked.inputs[0].nbytes == 8


def test_shared_memory_is_a_reference() -> None:
    place = {"shared_memory_region": "r", "shared_memory_offset": 16, "shared_memory_byte_size": 8}
    asked, form = decoded(
        request(tensor(parameters=place), outputs=[{"name": "y", "parameters": place}]), ANY
    )
    assert asked.inputs[0].data == SharedMemoryRef("r", 16, 8)
    assert asked.outputs == (RequestedOutput("y", placement=SharedMemoryRef("r", 16, 8)),)
    assert form == OipHttpReplyForm()


def test_classification_is_carried() -> None:
    asked, _ = decoded(
        request(tensor([1, 2]), outputs=[{"name": "y", "parameters": {"classification": 3}}]), ANY
    )
    assert asked.outputs == (RequestedOutput("y", classification=3),)


def test_binary_data_output_is_for_outputs_that_are_not_listed() -> None:
    everything = {"parameters": {"binary_data_output": True}}
    assert decoded(request(tensor([1, 2]), **everything), ANY)[1] == OipHttpReplyForm(all_binary=True)
    listed = request(tensor([1, 2]), outputs=[{"name": "y"}], **everything)
    assert decoded(listed, ANY)[1] == OipHttpReplyForm()


def test_data_of_an_empty_tensor_does_not_matter() -> None:
    for data in ([], [1.0], "x"):
        asked, _ = decoded(request(tensor(data, (0, 3))), ANY)
        assert (asked.inputs[0].shape, asked.inputs[0].nbytes) == ((0, 3), 0)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (post(b""), "is not JSON"),
        (post(b"not json"), "is not JSON"),
        (post(b"[]"), "is not an object"),
        (post(b"{}"), "'inputs' is missing"),
        (post(b'{"inputs":{}}'), "'inputs' must be an array"),
        (post(b'{"inputs":[1]}'), r"'inputs\[0\]' must be an object"),
        (request(tensor([1, 2], name=3)), r"'inputs\[0\].name' must be a string"),
        (request({"name": "x", "shape": [1]}), r"'inputs\[0\].datatype' must be a string"),
        (request(tensor([1, 2], datatype=["FP32"])), r"'inputs\[0\].datatype' must be a string"),
        (request({"name": "x", "datatype": "FP32"}), r"'inputs\[0\].shape' must be an array"),
        (request(tensor([1], (-1,))), r"'inputs\[0\].shape' must hold integers"),
        (request(tensor([1], (1.0,))), r"'inputs\[0\].shape' must hold integers"),
        (request(tensor([1], (True,))), r"'inputs\[0\].shape' must hold integers"),
        (request(tensor([1, 2], parameters=[])), "'parameters' must be an object"),
        (request(tensor([1, 2]), id=5), "'id' must be a string"),
        (request(tensor([1, 2]), parameters=[1]), "'parameters' must be an object"),
        (request(tensor([1, 2]), outputs={}), "'outputs' must be an array"),
        (request(tensor([1, 2]), outputs=[{}]), r"'outputs\[0\].name' must be a string"),
        (request(tensor([1, 2]), length=9999), "should be in range"),
        (request(tensor([1, 2]), length="-1"), "should be in range"),
        (request(tensor([1, 2]), length="12abc"), "should be in range"),
        (request(tensor([1, 2]), length=""), "should be in range"),
        (request(tensor([1, 2]), length="9" * 5000), "should be in range"),
    ],
)
def test_malformed(message: HttpRequest, text: str) -> None:
    error = refusal(message)
    assert error.code is ErrorCode.MALFORMED
    with pytest.raises(InferenceError, match=text):
        raise error


SOURCES = "Input must set only one of the following fields: 'data', 'binary_data_size'"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (request(tensor([1, 2], datatype="fp32")), "invalid datatype 'fp32' for input 'x'"),
        (request(tensor([1, 2], datatype="FLOAT")), "invalid datatype 'FLOAT' for input 'x'"),
        (request(tensor()), f"{SOURCES}.*no field is set for input 'x'"),
        (request(binary(8, data=[1, 2])), f"{SOURCES}.*set 'data' 'binary_data_size'"),
        (request(tensor(1.0)), "'data' of tensor 'x' must be an array"),
        (request(tensor({"a": 1})), "'data' of tensor 'x' must be an array"),
        (request(tensor([1, 2, 3])), "the shape needs 2 elements, 'data' has 3"),
        (request(tensor(["a"], (2,), "BYTES")), "the shape needs 2 elements, 'data' has 1"),
        (request(tensor([1, 256], datatype="UINT8")), r"element 1 \(256\) is out of range for UINT8"),
        (request(tensor([1.5, 2], datatype="INT32")), "element 0 must be an integer"),
        (request(tensor([1, 0], datatype="BOOL")), "element 0 must be true or false"),
        (request(tensor([None, 0])), "element 0 must be a number, got null"),
        (request(tensor([1.0, 2], datatype="FP16")), "receiving FP16 data via JSON is not supported.*input x"),
        (request(tensor([1.0, 2], datatype="BF16")), "receiving BF16 data via JSON is not supported.*input x"),
        (request(binary("8")), "'binary_data_size' of tensor 'x' must be an unsigned integer"),
        (request(binary(-1)), "'binary_data_size' of tensor 'x' must be an unsigned integer"),
        (request(binary(True)), "'binary_data_size' of tensor 'x' must be an unsigned integer"),
        (
            request(binary(12, shape=(4,)), tail=bytes(12)),
            "input byte size mismatch for input 'x' for model 'm'. Expected 16, got 12",
        ),
        (request(tensor([1], (2**40, 2**40))), "more elements than 64 bits can count"),
        (request(tensor([1, 2]), parameters={"binary_data_output": 1}), "'binary_data_output' must be a boolean"),
        (
            request(tensor([1, 2]), outputs=[{"name": "y", "parameters": {"binary_data": "yes"}}]),
            "'binary_data' must be a boolean",
        ),
        (
            request(tensor([1, 2]), parameters={"triton_enable_empty_final_response": True}),
            "reserved for Triton usage .* Got 'triton_enable_empty_final_response'",
        ),
        (
            request(binary(6, shape=(1,), datatype="BYTES"), tail=b"\x05\0\0\0ab"),
            "tensor 'x' of datatype BYTES needs 1 length-prefixed elements",
        ),
    ],
)  # fmt: skip
def test_invalid(message: HttpRequest, text: str) -> None:
    error = refusal(message)
    assert error.code is ErrorCode.INVALID_TENSOR
    with pytest.raises(InferenceError, match=text):
        raise error


def test_binary_data_cut_short_says_by_how_much_and_where() -> None:
    message = request(binary(8), binary(8, name="z"), tail=bytes(13))
    header = message.headers[LENGTH]
    assert refusal(message).message == (
        "unexpected size for input 'z', expecting 3 additional bytes for model 'm': the JSON header takes "
        f"{header} bytes, the body has {int(header) + 13}, and the binary_data_size values add up to 16"
    )


def test_binary_data_left_over_says_how_much() -> None:
    message = request(binary(8), tail=bytes(13))
    header = message.headers[LENGTH]
    assert refusal(message).message == (
        "unexpected additional input data for model 'm', 5 bytes: the JSON header takes "
        f"{header} bytes, the body has {int(header) + 13}, and the binary_data_size values add up to 8"
    )


@pytest.mark.parametrize(
    ("spec", "batch", "body", "shape"),
    [
        (FP32, 0, bytes(12), (3,)),
        (TensorSpec("x", Datatype.INT32, (-1, 4)), 0, bytes(32), (2, 4)),
        (TensorSpec("x", Datatype.UINT8, (2, 2)), 0, bytes(4), (2, 2)),
        (TensorSpec("x", Datatype.UINT8, (-1,)), 0, b"", (0,)),
        (TensorSpec("x", Datatype.BYTES, (1,)), 0, b"any \xff", (1,)),
        # at Triton the body is a batch of one
        (TensorSpec("x", Datatype.BYTES, (-1, 1)), 8, b"", (1, 1)),
        (TensorSpec("x", Datatype.INT32, (-1, -1)), 8, bytes(12), (1, 3)),
        (TensorSpec("x", Datatype.INT32, (-1, 2, -1)), 8, bytes(24), (1, 2, 3)),
        (TensorSpec("x", Datatype.INT32, (-1, 4)), 8, bytes(16), (1, 4)),
        (TensorSpec("x", Datatype.INT32, (-1, -1)), 8, b"", (1, 0)),
    ],
)
def test_raw_binary_request(spec: TensorSpec, batch: int, body: bytes, shape: tuple[int, ...]) -> None:
    asked, form = decoded(post(body, {LENGTH: "0"}), Signature((spec,), (), batch))
    (only,) = asked.inputs
    assert (only.name, only.datatype, only.shape) == ("x", spec.datatype, shape)
    assert (only.elements() == [body]) if spec.datatype is Datatype.BYTES else (bytes(only.view) == body)
    assert form.all_binary


@pytest.mark.parametrize(
    ("spec", "size", "text"),
    [
        (TensorSpec("x", Datatype.INT32, (-1, 4)), 32, "Expected 16, got 32"),
        (TensorSpec("x", Datatype.INT32, (-1, 4)), 8, "Expected 16, got 8"),
        (TensorSpec("x", Datatype.INT32, (-1, 4)), 0, "Expected 16, got 0"),
        (TensorSpec("x", Datatype.INT32, (-1, -1)), 5, "Expected 4, got 5"),
        (TensorSpec("x", Datatype.INT32, (-1, -1, -1)), 8, "shape of the raw input 'x' can not be deduced"),
        (
            TensorSpec("x", Datatype.BYTES, (-1, -1)),
            8,
            r"raw input 'x', the model must have input shape \[1\]",
        ),
    ],
)
def test_raw_binary_request_that_is_no_batch_of_one(spec: TensorSpec, size: int, text: str) -> None:
    error = refusal(post(bytes(size), {LENGTH: "0"}), Signature((spec,), (), 8))
    assert error.code is ErrorCode.INVALID_TENSOR
    with pytest.raises(InferenceError, match=text):
        raise error


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ((FP32, FP32), "Raw request must only have 1 input .* got 2 inputs in 'm'"),
        ((TensorSpec("x", Datatype.INT8, (-1, -1)),), "shape of the raw input 'x' can not be deduced"),
        ((TensorSpec("x", Datatype.INT64, (-1,)),), "Expected 0, got 3"),
        ((TensorSpec("x", Datatype.INT8, (-1, 0)),), "Expected 0, got 3"),
        ((TensorSpec("x", Datatype.BYTES, (-1,)),), r"raw input 'x', the model must have input shape \[1\]"),
        ((TensorSpec("x", Datatype.BYTES, (2,)),), r"raw input 'x', the model must have input shape \[1\]"),
    ],
)
def test_raw_binary_request_that_tells_no_shape(specs: tuple[TensorSpec, ...], text: str) -> None:
    error = refusal(post(b"abc", {LENGTH: "0"}), Signature(specs, ()))
    assert error.code is ErrorCode.INVALID_TENSOR
    with pytest.raises(InferenceError, match=text):
        raise error


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_requests(coding: str, compress: Any) -> None:
    plain = request(binary(8), tail=np.ones(2, "<f4").tobytes())
    headers = {**plain.headers, "content-encoding": coding}
    asked, _ = decoded(post(compress(plain.body), headers, max_body_bytes=len(plain.body)), ANY)
    np.testing.assert_array_equal(asked.inputs[0].numpy(), np.ones(2, np.float32))
    error = refusal(post(compress(plain.body), headers, max_body_bytes=len(plain.body) - 1))
    assert error.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("coding", ["br", "GZIP", "gzip, deflate"])
def test_other_codings_are_refused(coding: str) -> None:
    error = refusal(post(b"{}", {"content-encoding": coding}))
    assert error.code is ErrorCode.UNSUPPORTED
    assert error.details["accept_encoding"] == "gzip, deflate"


@pytest.mark.parametrize("coding", ["", "identity"])
def test_no_coding(coding: str) -> None:
    body = json.dumps({"inputs": [tensor([1, 2])]}).encode()
    assert decoded(post(body, {"content-encoding": coding}), ANY)[0].inputs[0].nbytes == 8


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16])
def test_outputs_without_a_json_form_are_refused_before_the_model_runs(datatype: Datatype) -> None:
    half = Signature((FP32,), (TensorSpec("y", datatype, (-1,)), TensorSpec("z", Datatype.FP32, (-1,))))

    def listed(name: str, **parameters: Any) -> dict[str, Any]:
        return {"outputs": [{"name": name, "parameters": parameters}]}

    for more in ({}, listed("y"), listed("y", binary_data=False)):
        error = refusal(request(tensor([1, 2]), **more), half)
        assert error.code is ErrorCode.INVALID_TENSOR
        assert error.message == (
            f"sending {datatype.value} data via JSON is not supported. "
            "Please use the binary data format for output y"
        )
    for more in (
        listed("z"),
        listed("y", binary_data=True),
        listed("y", shared_memory_region="r", shared_memory_byte_size=2),
        {"parameters": {"binary_data_output": True}},
    ):
        decoded(request(tensor([1, 2]), **more), half)


@pytest.mark.parametrize(
    ("path", "model", "version"),
    [
        ("/v2/models/m/infer", "m", ""),
        ("/v2/models/m/versions/3/infer", "m", "3"),
        ("/v2/models/m/versions/007/infer", "m", "7"),
        ("/v2/models/m/versions/00/infer", "m", "0"),
        ("/v2/models/a%20b%2Fc%E2%82%AC/infer", "a b/c€", ""),
        ("/v2/models/versions/infer", "versions", ""),
    ],
)
def test_model_and_version_come_from_the_path(path: str, model: str, version: str) -> None:
    message = opened(post(b"", path=path))
    assert (message.model, message.version) == (model, version)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v2/models/m/versions/abc/infer", ErrorCode.NOT_FOUND),
        ("/v2/models/m/versions/-1/infer", ErrorCode.NOT_FOUND),
        ("/v2/models/m/versions/%31/infer", ErrorCode.NOT_FOUND),
        ("/v2/models/m/versions/99999999999999999999/infer", ErrorCode.INVALID_TENSOR),
        ("/v2/models/m/versions/" + "9" * 5000 + "/infer", ErrorCode.INVALID_TENSOR),
        ("/v2/models/%FF/infer", ErrorCode.NOT_FOUND),
        ("/v2/models/\udcff/infer", ErrorCode.NOT_FOUND),
    ],
)
def test_paths_that_name_nothing(path: str, code: ErrorCode) -> None:
    with pytest.raises(InferenceError) as caught:
        opened(post(b"", path=path))
    assert caught.value.code is code
