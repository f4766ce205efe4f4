"""Calls to an upstream and its replies, as the different servers write them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.oip.client import HTTP_CALLS, HTTP_JSON_CALLS
from interlingua.protocols.oip.client_http import NO_FORM
from interlingua.protocols.wire import HttpCall, HttpReply
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelRef,
    Operation,
    Readiness,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)

INPUT = Tensor.from_numpy("x", np.array([1, 2], np.float32))


def infer(request: InferRequest, calls: Any = HTTP_CALLS) -> tuple[HttpCall, dict[str, Any]]:
    sent, _ = calls[Operation.INFER].encode(request, None)
    return sent, json.loads(sent.parts[0])


def answered(document: Any, form: Any = None, tail: bytes = b"", status: int = 200) -> Any:
    header = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = {"inference-header-content-length": str(len(header))} if tail else {}
    return HTTP_CALLS[Operation.INFER].decode(form or NO_FORM, HttpReply(status, headers, header + tail))


def output(**members: Any) -> dict[str, Any]:
    return {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], **members}]}


@pytest.mark.parametrize(
    ("model", "version", "path"),
    [
        ("m", "", "/v2/models/m/infer"),
        ("m", "3", "/v2/models/m/versions/3/infer"),
        ("a b/€", "v1.2", "/v2/models/a%20b%2F%E2%82%AC/versions/v1.2/infer"),
    ],
)
def test_paths(model: str, version: str, path: str) -> None:
    sent, _ = infer(InferRequest(model, (INPUT,), version=version))
    assert (sent.method, sent.path) == ("POST", path)
    for suffix, operation in (("", Operation.MODEL_METADATA), ("/ready", Operation.MODEL_READY)):
        asked, _ = HTTP_CALLS[operation].encode(ModelRef(model, version), None)
        assert (asked.method, asked.path) == ("GET", path.removesuffix("/infer") + suffix)


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        (Operation.LIVE, "/v2/health/live"),
        (Operation.READY, "/v2/health/ready"),
        (Operation.SERVER_METADATA, "/v2"),
    ],
)
def test_paths_of_the_server(operation: Operation, path: str) -> None:
    asked, _ = HTTP_CALLS[operation].encode(None, None)
    assert (asked.method, asked.path) == ("GET", path)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InferenceError) as caught:
        infer(InferRequest("\ud800", (INPUT,)))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_binary_requests_ask_for_binary_answers() -> None:
    sent, document = infer(InferRequest("m", (INPUT,), id="q", sequence=Sequence(3, start=True)))
    assert document == {
        "id": "q",
        "parameters": {"sequence_id": 3, "sequence_start": True, "sequence_end": False, "binary_data_output": True},
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}],
    }  # fmt: skip
    assert sent.headers == {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(sent.parts[0])),
    }
    assert sent.parts[1] is INPUT.data
    _, document = infer(InferRequest("m", (INPUT,), (RequestedOutput("y", 2), RequestedOutput("z"))))
    assert "parameters" not in document
    assert document["outputs"] == [
        {"name": "y", "parameters": {"classification": 2, "binary_data": True}},
        {"name": "z", "parameters": {"binary_data": True}},
    ]


def test_json_requests_use_no_extension() -> None:
    sent, document = infer(InferRequest("m", (INPUT,), (RequestedOutput("y"),)), HTTP_JSON_CALLS)
    assert document == {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}],
        "outputs": [{"name": "y"}],
    }
    assert (sent.headers, len(sent.parts)) == ({"Content-Type": "application/json"}, 1)


def test_half_floats_may_go_as_json_because_mlserver_has_nothing_else() -> None:
    half = Tensor.from_numpy("x", np.array([0.5, 0.1], np.float16))
    _, document = infer(InferRequest("m", (half,)), HTTP_JSON_CALLS)
    np.testing.assert_array_equal(np.array(document["inputs"][0]["data"], np.float16), half.numpy())


def test_what_concerns_streams_stays_here() -> None:
    request = InferRequest("m", (INPUT,), parameters={"triton_enable_empty_final_response": True})
    assert infer(request)[1]["parameters"] == {"binary_data_output": True}


def test_binary_and_json_outputs_in_one_answer() -> None:
    document = {
        "model_name": "m", "model_version": "2", "id": "q", "parameters": {"p": 1, "odd": [1]},
        "outputs": [
            {"name": "a", "datatype": "FP16", "shape": [2], "parameters": {"binary_data_size": 4}},
            {"name": "b", "datatype": "INT64", "shape": [1], "data": [9007199254740993]},
            {"name": "c", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
        ],
    }  # fmt: skip
    response = answered(document, tail=b"\x00<\x00\xc0" + b"\x01\0\0\0\xff")
    assert (response.model, response.version, response.id) == ("m", "2", "q")
    assert response.parameters == {"p": 1}
    half, whole, text = response.outputs
    assert half.numpy().tolist() == [1.0, -2.0]
    assert whole.numpy().tolist() == [2**53 + 1]
    assert text.elements() == [b"\xff"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (output(data=[1, 2.5]), [1, 2.5]),
        (output(data=[[1], [2]]), [1, 2]),
        (output(data=[1, 2], parameters=None), [1, 2]),
        (output(data=[1, 2], parameters={"content_type": "np"}), [1, 2]),
        ({**output(data=[1, 2]), "id": None, "model_version": None, "parameters": None}, [1, 2]),
        (output(shape=[1], data=1.5), [1.5]),
        (output(shape=[0], parameters={"binary_data_size": 0}), []),
        (output(shape=[0]), []),
        (output(shape=[0], data=None), []),
        (b'\xef\xbb\xbf{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[Infinity]}]}', [np.inf]),
    ],
)
def test_answers_in_json(document: Any, expected: list[float]) -> None:
    (tensor,) = answered(document).outputs
    assert tensor.numpy().ravel().tolist() == expected


def test_outputs_in_shared_memory_stay_there() -> None:
    place = SharedMemoryRef("r", 0, 8)
    sent, form = HTTP_CALLS[Operation.INFER].encode(
        InferRequest("m", (), (RequestedOutput("y", placement=place),)), None
    )
    assert json.loads(sent.parts[0])["outputs"][0]["parameters"] == {
        "shared_memory_region": "r", "shared_memory_offset": 0, "shared_memory_byte_size": 8,
    }  # fmt: skip
    assert answered(output(), form).outputs[0].data == place


@pytest.mark.parametrize(
    "document",
    [
        b"", b"<html>", b"[]", b"{}", {"outputs": {}}, {"outputs": [1]}, output(), output(data=[1]),
        output(data=[None, 1]), output(data=["1", "2"]), output(datatype="FLOAT", data=[1, 2]),
        output(datatype=None, data=[1, 2]), output(shape=[-1], data=[1]), output(shape=None, data=[1]),
        output(parameters={"binary_data_size": 8}), output(parameters={"binary_data_size": "8"}),
        output(parameters={"binary_data_size": 4}), output(datatype="BF16", data=[1, 2]),
        {**output(data=[1, 2]), "id": 5}, output(data={"a": 1}),
    ],
)  # fmt: skip
def test_answers_that_make_no_sense(document: Any) -> None:
    with pytest.raises(InferenceError, match="the upstream's answer is not valid") as caught:
        answered(document)
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


@pytest.mark.parametrize(("size", "text"), [(8, "3 bytes belong to no output"), (16, "'y' is 5 bytes short")])
def test_binary_answers_that_do_not_add_up(size: int, text: str) -> None:
    with pytest.raises(InferenceError, match=text) as caught:
        answered(output(parameters={"binary_data_size": size}), tail=bytes(11))
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (400, b'{"error":"bad shape"}', ErrorCode.INVALID_TENSOR, "bad shape"),
        (404, b'{"error":"no model"}', ErrorCode.NOT_FOUND, "no model"),
        (404, b'{"detail":"Not Found"}', ErrorCode.NOT_FOUND, "Not Found"),
        (
            422,
            b'{"detail":[{"loc":["body","inputs",0],"msg":"a"},{"msg":"b"},{"loc":3,"msg":"c"},7]}',
            ErrorCode.INVALID_TENSOR,
            "body.inputs.0: a; b; c",
        ),
        (500, b"Internal Server Error", ErrorCode.MODEL_FAILED, "Internal Server Error"),
        (500, b"", ErrorCode.MODEL_FAILED, "the upstream answered HTTP status 500 and no reason"),
        (503, b'{"error":""}', ErrorCode.UNAVAILABLE, "HTTP status 503 and no reason"),
        (503, b'{"detail":5}', ErrorCode.UNAVAILABLE, "HTTP status 503 and no reason"),
        (307, b"", ErrorCode.BAD_UPSTREAM, "HTTP status 307 and no reason"),
        (418, b"\xff" * 5000, ErrorCode.BAD_UPSTREAM, "\N{REPLACEMENT CHARACTER}" * 2000),
        (201, b"{}", ErrorCode.BAD_UPSTREAM, "HTTP status 201"),
    ],
)
def test_an_upstreams_errors_keep_its_words(status: int, body: bytes, code: ErrorCode, words: str) -> None:
    for operation in (Operation.INFER, Operation.MODEL_METADATA, Operation.SERVER_METADATA):
        form = NO_FORM if operation is Operation.INFER else None
        with pytest.raises(InferenceError) as caught:
            HTTP_CALLS[operation].decode(form, HttpReply(status, {}, body))
        assert caught.value.code is code
        assert words in caught.value.message


@pytest.mark.parametrize("operation", [Operation.LIVE, Operation.READY, Operation.MODEL_READY])
def test_readiness_is_the_status(operation: Operation) -> None:
    decode = HTTP_CALLS[operation].decode
    for body in (b"", b'{"ready":true}', b"ok"):
        assert decode(None, HttpReply(200, {}, body)) == Readiness(True)
    assert decode(None, HttpReply(404, {}, b'{"error":"gone"}')) == Readiness(False, "gone")


def test_metadata_of_several_servers() -> None:
    decode = HTTP_CALLS[Operation.MODEL_METADATA].decode
    written = {
        "name": "m", "versions": None, "platform": "p", "unknown": 1, "parameters": {},
        "inputs": [{"name": "x", "datatype": "BF16", "shape": [-1, 4], "parameters": {"content_type": "np"}}],
    }  # fmt: skip
    metadata = decode(None, HttpReply(200, {}, json.dumps(written).encode()))
    assert (metadata.name, metadata.versions, metadata.platform) == ("m", (), "p")
    spec = TensorSpec("x", Datatype.BF16, (-1, 4), parameters={"content_type": "np"})
    assert metadata.signature == Signature((spec,), ())
    for bad in (
        {"versions": [1]}, {"versions": "1"}, {"inputs": [{}]}, {"name": 1},
        {"inputs": [{"name": "x", "datatype": "FLOAT", "shape": []}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-2]}]},
    ):  # fmt: skip
        with pytest.raises(InferenceError) as caught:
            decode(None, HttpReply(200, {}, json.dumps({**written, **bad}).encode()))
        assert caught.value.code is ErrorCode.BAD_UPSTREAM
