"""Answers as a server writes them: inference, probes, metadata, errors."""

from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from interlingua.protocols.content_coding import inflate
from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.oip import DIALECT
from interlingua.protocols.oip.codec_http import OipHttpReplyForm, encode_response
from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    ModelMetadata,
    Readiness,
    ServerMetadata,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.protocols.oip.http_exchange import opened, post, received, refused

FP32 = Tensor.from_numpy("x", np.array([[0.1, 1], [-0.0, 3e38]], np.float32))
BYTES = Tensor.from_numpy("s", np.array(["é", ""], object))
JSON = {"content-type": "application/json"}


def body(answer: HttpAnswer) -> Any:
    return json.loads(b"".join(parts_of(answer)))


def result(path: str, value: Any) -> HttpAnswer:
    message = opened(HttpRequest("GET", path))
    return message.action.encode(message, value)


def test_members_stand_in_tritons_order() -> None:
    response = InferResponse("m", (FP32, BYTES), "1", "not this one", {"p": 1})
    headers, parts = encode_response(OipHttpReplyForm("mine"), response)
    assert received(headers) == JSON
    assert parts == [
        b'{"id":"mine","model_name":"m","model_version":"1","parameters":{"p":1},"outputs":['
        b'{"name":"x","datatype":"FP32","shape":[2,2],"data":[0.1,1.0,-0.0,3e+38]},'
        b'{"name":"s","datatype":"BYTES","shape":[2],"data":["\xc3\xa9",""]}]}'
    ]


def test_what_is_empty_is_omitted() -> None:
    _, parts = encode_response(OipHttpReplyForm(), InferResponse("m", ()))
    assert parts == [b'{"model_name":"m","outputs":[]}']


def test_binary_outputs_follow_the_json_without_a_copy() -> None:
    headers, parts = encode_response(
        OipHttpReplyForm(binary=frozenset({"x"})), InferResponse("m", (FP32, BYTES), "1")
    )
    assert received(headers) == {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(parts[0])),
    }
    outputs = json.loads(bytes(parts[0]))["outputs"]
    assert outputs[0] == {
        "name": "x", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": 16},
    }  # fmt: skip
    assert outputs[1]["data"] == ["é", ""]
    assert parts[1:] == [FP32.view]
    assert parts[1] is FP32.data


@pytest.mark.parametrize(
    "form", [OipHttpReplyForm(all_binary=True), OipHttpReplyForm(binary=frozenset({"x", "s"}))]
)
def test_an_answer_that_comes_again_has_its_own_data_and_its_own_description(form: OipHttpReplyForm) -> None:
    wide = Tensor("x", Datatype.FP32, (4,), FP32.view)
    other = Tensor("x", Datatype.FP32, (2, 2), memoryview(bytes(16)))
    for model, version, tensors in (
        ("m", "1", (FP32, BYTES)),
        ("m", "1", (other, BYTES)),
        ("m", "1", (wide, BYTES)),
        ("n", "1", (FP32,)),
        ("n", "", (FP32,)),
        ("n", "", (Tensor("x", Datatype.FP32, (2, 2, *[1] * 9), FP32.view),)),
    ):
        headers, parts = encode_response(form, InferResponse(model, tensors, version))
        assert received(headers)["inference-header-content-length"] == str(len(parts[0]))
        told = json.loads(bytes(parts[0]))
        assert (told["model_name"], told.get("model_version", "")) == (model, version)
        assert told["outputs"] == [
            {
                "name": tensor.name,
                "datatype": tensor.datatype.value,
                "shape": list(tensor.shape),
                "parameters": {"binary_data_size": tensor.nbytes},
            }
            for tensor in tensors
        ]
        assert parts[1:] == [tensor.view for tensor in tensors]


def test_outputs_without_a_binary_byte_are_plain_json() -> None:
    empty = Tensor.from_numpy("x", np.zeros((0, 2), np.float32))
    headers, parts = encode_response(OipHttpReplyForm(all_binary=True), InferResponse("m", (empty,)))
    assert received(headers) == JSON
    (output,) = json.loads(b"".join(parts))["outputs"]
    assert output["parameters"] == {"binary_data_size": 0}


def test_outputs_placed_in_shared_memory_are_only_described() -> None:
    placed = Tensor("x", Datatype.FP16, (2,), SharedMemoryRef("r", 0, 4))
    headers, parts = encode_response(OipHttpReplyForm(), InferResponse("m", (placed,)))
    assert received(headers) == JSON
    assert json.loads(bytes(parts[0]))["outputs"] == [{"name": "x", "datatype": "FP16", "shape": [2]}]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (InferResponse("m", (Tensor.from_numpy("x", np.array([b"\xff"], object)),)), "'x': element 0 is not"),
        (InferResponse("m", (Tensor.from_numpy("x", np.ones(1, np.float16)),)), "sending FP16 data via JSON"),
        (InferResponse("m", (Tensor.from_numpy("x", np.ones(1, ml_dtypes.bfloat16)),)), "sending BF16 data"),
        (InferResponse("m", (), parameters={"p": math.inf}), "parameter 'p' is inf"),
        (InferResponse("m", (), parameters={"p": 2**64}), "JSON cannot carry this"),
        (InferResponse("\ud800", ()), "JSON cannot carry this"),
    ],
)
def test_what_json_cannot_carry_is_refused(response: InferResponse, text: str) -> None:
    with pytest.raises(InferenceError, match=text) as caught:
        encode_response(OipHttpReplyForm(), response)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_the_same_goes_out_as_binary_data() -> None:
    for values in (np.array([1, np.nan]), np.array([b"\xff"], object), np.ones(1, ml_dtypes.bfloat16)):
        tensor = Tensor.from_numpy("x", values)
        assert (
            encode_response(OipHttpReplyForm(all_binary=True), InferResponse("m", (tensor,)))[1][1]
            == tensor.view
        )


@pytest.mark.parametrize(
    ("path", "state", "status", "expected"),
    [
        ("/v2/health/live", Readiness(True), 200, {"live": True}),
        ("/v2/health/ready", Readiness(True), 200, {"ready": True}),
        ("/v2/health/ready", Readiness(False, "why"), 400, {"ready": False, "error": "why"}),
        ("/v2/models/a%20b/ready", Readiness(True), 200, {"name": "a b", "ready": True}),
        ("/v2/models/m/versions/2/ready", Readiness(True), 200, {"name": "m", "ready": True}),
        ("/v2/models/m/ready", Readiness(False, "why"), 400, {"error": "why"}),
        ("/v2/models/m/ready", Readiness(False), 400, {"error": "Model version not ready"}),
    ],
)
def test_probes(path: str, state: Readiness, status: int, expected: dict[str, Any]) -> None:
    answer = result(path, state)
    assert (answer.status, received(answer.headers), body(answer)) == (status, JSON, expected)


def test_metadata() -> None:
    answer = result("/v2", ServerMetadata("s", "1.0", ("binary_tensor_data",)))
    assert body(answer) == {"name": "s", "version": "1.0", "extensions": ["binary_tensor_data"]}
    signature = Signature(
        (TensorSpec("x", Datatype.INT32, (-1, 16)),),
        (TensorSpec("y", Datatype.BYTES, ()),),
        8,
    )
    for path in ("/v2/models/m", "/v2/models/m/versions/1"):
        answer = result(path, ModelMetadata("m", signature, ("1", "3"), "onnxruntime_onnx"))
        assert b"".join(parts_of(answer)) == (
            b'{"name":"m","versions":["1","3"],"platform":"onnx_onnxv1",'
            b'"inputs":[{"name":"x","datatype":"INT32","shape":[-1,16]}],'
            b'"outputs":[{"name":"y","datatype":"BYTES","shape":[]}]}'
        )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.MALFORMED, 400), (ErrorCode.INVALID_TENSOR, 400), (ErrorCode.UNREPRESENTABLE, 422),
        (ErrorCode.NOT_FOUND, 404), (ErrorCode.ALREADY_EXISTS, 400), (ErrorCode.UNSUPPORTED, 501),
        (ErrorCode.UNAUTHENTICATED, 401), (ErrorCode.FORBIDDEN, 403), (ErrorCode.TOO_LARGE, 413),
        (ErrorCode.OVERLOADED, 429), (ErrorCode.UNAVAILABLE, 503), (ErrorCode.DEADLINE_EXCEEDED, 504),
        (ErrorCode.MODEL_FAILED, 500), (ErrorCode.BAD_UPSTREAM, 502), (ErrorCode.INTERNAL, 500),
    ],
)  # fmt: skip
def test_errors(code: ErrorCode, status: int) -> None:
    answer = refused(post(b""), InferenceError(code, "what 'x' was"))
    headers = received(answer.headers)
    assert (answer.status, body(answer)) == (status, {"error": "what 'x' was"})
    assert headers["content-type"] == "application/json"
    assert ("retry-after" in headers) == (code is ErrorCode.OVERLOADED)


def test_an_unknown_content_coding_is_answered_with_the_known_ones() -> None:
    message = opened(post(b"", {"content-encoding": "br"}))
    assert message.action.decode is not None
    with pytest.raises(InferenceError) as caught:
        message.action.decode(message, Signature((), ()))
    answer = refused(post(b""), caught.value)
    assert answer.status == 501
    assert received(answer.headers)["accept-encoding"] == "gzip, deflate"


def test_an_error_may_quote_anything() -> None:
    answer = refused(post(b""), InferenceError(ErrorCode.NOT_FOUND, "no \udcff"))
    assert body(answer) == {"error": "no \\udcff"}


@pytest.mark.parametrize(
    ("allowed", "status", "text"), [((), 404, "Not Found"), (("POST", "GET"), 405, "Method Not Allowed")]
)
def test_unmatched(allowed: tuple[str, ...], status: int, text: str) -> None:
    assert DIALECT.bindings["http"].unmatched is not None
    answer = DIALECT.bindings["http"].unmatched(HttpRequest("PUT", "/v2/x"), allowed)
    assert (answer.status, body(answer)) == (status, {"error": text})
    assert received(answer.headers).get("allow") == ("GET, POST" if allowed else None)


def test_inference_answers_through_the_table() -> None:
    message: Opened[HttpAnswer] = opened(post(b""))
    action: Action[HttpAnswer] = message.action
    answer = action.encode(OipHttpReplyForm("q"), InferResponse("m", (FP32,), "1"))
    assert answer.status == 200
    assert body(answer)["id"] == "q"


def test_what_is_not_finite_has_the_requested_form() -> None:
    tensor = Tensor.from_numpy("x", np.array([1, np.nan, np.inf, -np.inf], np.float32))
    response = InferResponse("m", (tensor,))
    with pytest.raises(InferenceError, match="tensor 'x': element 1 is nan") as caught:
        encode_response(OipHttpReplyForm(), response)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    _, parts = encode_response(OipHttpReplyForm(), response, nonfinite=True)
    assert b'"data":[1.0,NaN,Infinity,-Infinity]' in bytes(parts[0])


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_answers_are_compressed(coding: str) -> None:
    tensor = Tensor.from_numpy("x", np.zeros(4096, np.float32))
    plain_headers, plain = encode_response(OipHttpReplyForm(all_binary=True), InferResponse("m", (tensor,)))
    headers, parts = encode_response(
        OipHttpReplyForm(all_binary=True, coding=coding), InferResponse("m", (tensor,))
    )
    # the length of the JSON counts what was there before
    assert received(headers) == {**received(plain_headers), "content-encoding": coding}
    compressed = b"".join(parts)
    assert len(compressed) < 1000
    assert inflate(coding, compressed, None) == b"".join(plain)
