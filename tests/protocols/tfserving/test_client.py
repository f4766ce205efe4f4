"""Calls to servers of all flavors, by replies written by hand, and by servers of ours."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from interlingua.protocols.path_table import PathTable
from interlingua.protocols.tfserving import DIALECT
from interlingua.protocols.tfserving.client import GRPC_CALLS, HTTP_CALLS, KSERVE_CALLS
from interlingua.protocols.wire import GrpcAnswer, HttpReply, HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelRef,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.properties.through import received
from tests.strategies import batches, signature_of

X = Tensor.from_numpy("x", np.array([[1, 2]], np.float32))
Y = TensorSpec("y", Datatype.FP32, (-1, -1))
ONE = Signature((TensorSpec("x", Datatype.FP32, (-1, -1)),), (Y,))
THREE = Signature(
    ONE.inputs,
    (Y, TensorSpec("class", Datatype.INT64, (-1,)), TensorSpec("p", Datatype.FP64, (-1, 3))),
)
TWO = Signature(ONE.inputs, (Y, TensorSpec("t", Datatype.BYTES, (-1,))))
KSERVE = DIALECT.bindings["http"].flavors["kserve"]


def answered(document: Any, status: int = 200) -> HttpReply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return HttpReply(status, {"content-type": "application/json"}, body)


def outputs(document: Any, signature: Signature | None, calls: Any = HTTP_CALLS) -> dict[str, Any]:
    call = calls[Operation.INFER]
    _, form = call.encode(InferRequest("m", (X,)), signature)
    found = call.decode(form, answered(document)).outputs
    return {tensor.name: (tensor.datatype.value, tensor.numpy().tolist()) for tensor in found}


@pytest.mark.parametrize(
    ("document", "signature", "expected"),
    [
        ({"outputs": [[1, 2.5]]}, ONE, {"y": ("FP32", [[1, 2.5]])}),
        ({"outputs": {"y": [[1]]}}, ONE, {"y": ("FP32", [[1]])}),
        ({"predictions": [[1, 2.5]]}, ONE, {"y": ("FP32", [[1, 2.5]])}),
        ({"predictions": [{"y": [1]}, {"y": [2]}]}, ONE, {"y": ("FP32", [[1], [2]])}),
        ({"outputs": {"t": ["a"], "y": [[1]]}}, TWO, {"y": ("FP32", [[1]]), "t": ("BYTES", [b"a"])}),
        ({"predictions": [{"y": [1], "t": {"b64": "/w=="}}]}, TWO, {"y": ("FP32", [[1]]), "t": ("BYTES", [b"\xff"])}),
        ({"predictions": [1, 2]}, THREE, {"class": ("INT64", [1, 2])}),
        ({"outputs": [[1, 2]]}, THREE, {"y": ("FP32", [[1, 2]])}),
        ({"predictions": [1, 2]}, None, {"predictions": ("INT64", [1, 2])}),
        ({"predictions": [[1, 2.5]]}, None, {"predictions": ("FP64", [[1, 2.5]])}),
        ({"predictions": [True]}, None, {"predictions": ("BOOL", [True])}),
        ({"outputs": {"a": ["x"], "b": [1.5]}}, None, {"a": ("BYTES", [b"x"]), "b": ("FP64", [1.5])}),
        ({"predictions": [{"a": 1}, {"a": 2}]}, None, {"a": ("INT64", [1, 2])}),
    ],
)  # fmt: skip
def test_answers(document: Any, signature: Signature | None, expected: dict[str, Any]) -> None:
    assert outputs(document, signature) == expected


@pytest.mark.parametrize(
    ("document", "signature"),
    [
        (b"{", ONE),
        ({}, ONE),
        ({"outputs": [1]}, TWO),
        ({"outputs": ["a"]}, ONE),
        ({"predictions": [{"y": 1}, {}]}, ONE),
        ({"predictions": [1, "a"]}, None),
        ({"predictions": []}, None),
    ],
)
def test_invalid_answers(document: Any, signature: Signature | None) -> None:
    with pytest.raises(InferenceError) as caught:
        outputs(document, signature)
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


@pytest.mark.parametrize(("value", "which"), [([[1, 2, 3]], "any of 2"), ([[[1]]], "none")])
@pytest.mark.parametrize("requested", [None, (RequestedOutput("p"),)], ids=["no output", "an output"])
def test_a_value_that_several_outputs_or_none_may_be(
    value: Any, which: str, requested: tuple[RequestedOutput, ...] | None
) -> None:
    """No request over REST names outputs, so the requested one is not what a server has chosen."""
    call = KSERVE_CALLS[Operation.INFER]
    _, form = call.encode(InferRequest("m", (X,), requested), THREE)
    with pytest.raises(InferenceError) as caught:
        call.decode(form, answered({"predictions": value}))
    assert caught.value.code is ErrorCode.BAD_UPSTREAM
    assert f"fits {which} of the model's 3 outputs: 'y' [-1, -1], 'class' [-1], 'p' [-1, 3]" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("reply", "code", "text"),
    [
        (answered({"error": "no"}, 400), ErrorCode.INVALID_TENSOR, "no"),
        (answered({"error": "no"}, 404), ErrorCode.NOT_FOUND, "no"),
        (answered({"detail": "no"}, 404), ErrorCode.NOT_FOUND, "no"),
        (answered({"error": "no"}, 409), ErrorCode.ALREADY_EXISTS, "no"),
        (answered(b"gone", 503), ErrorCode.UNAVAILABLE, "gone"),
        (answered(b"", 418), ErrorCode.BAD_UPSTREAM, "HTTP status 418 and no reason"),
    ],
)
def test_errors(reply: HttpReply, code: ErrorCode, text: str) -> None:
    call = HTTP_CALLS[Operation.INFER]
    _, form = call.encode(InferRequest("m", (X,)), ONE)
    with pytest.raises(InferenceError) as caught:
        call.decode(form, reply)
    assert (caught.value.code, text in caught.value.message) == (code, True)


@pytest.mark.parametrize(
    ("version", "path"),
    [
        ("", "/v1/models/a%2Fb:predict"),
        ("7", "/v1/models/a%2Fb/versions/7:predict"),
        ("new", "/v1/models/a%2Fb/labels/new:predict"),
        ("07", "/v1/models/a%2Fb/labels/07:predict"),
    ],
)
def test_paths(version: str, path: str) -> None:
    call, _ = HTTP_CALLS[Operation.INFER].encode(InferRequest("a/b", (X,), version=version), ONE)
    assert (call.method, call.path) == ("POST", path)


def test_bodies() -> None:
    bodies = {}
    for name, calls in {"column": HTTP_CALLS, "row": KSERVE_CALLS}.items():
        call, _ = calls[Operation.INFER].encode(InferRequest("m", (X,)), ONE)
        bodies[name] = json.loads(b"".join(call.parts))
    assert bodies == {"column": {"inputs": {"x": [[1, 2]]}}, "row": {"instances": [[1, 2]]}}


@pytest.mark.parametrize(
    ("array", "signature"),
    [(np.float32(1), ONE), (np.zeros((0, 2), np.float32), ONE)],
    ids=["scalar", "empty"],
)
def test_what_has_no_rows_is_refused_by_name(array: Any, signature: Signature) -> None:
    tensor = Tensor.from_numpy("x", np.asarray(array))
    with pytest.raises(InferenceError, match="x") as caught:
        KSERVE_CALLS[Operation.INFER].encode(InferRequest("m", (tensor,)), signature)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_an_empty_array_with_dimensions_inside_needs_a_signature() -> None:
    tensor = Tensor.from_numpy("x", np.zeros((0, 2), np.float32))
    with pytest.raises(InferenceError, match="the shape .0, 2. of tensor 'x'"):
        HTTP_CALLS[Operation.INFER].encode(InferRequest("m", (tensor,)), ONE)
    fixed = signature_of([tensor])
    call, _ = HTTP_CALLS[Operation.INFER].encode(InferRequest("m", (tensor,)), fixed)
    assert json.loads(b"".join(call.parts)) == {"inputs": {"x": []}}


@given(sides=batches(set(Datatype) - {Datatype.BF16}))
def test_rows_survive_a_server_of_kserve(sides: tuple[tuple[Tensor, ...], ...]) -> None:
    inputs, answers = (tuple(_one_nan(tensor) for tensor in side) for side in sides)
    if any(0 in tensor.shape for tensor in (*inputs, *answers)):
        return
    signature = signature_of(inputs, answers)
    call, form = KSERVE_CALLS[Operation.INFER].encode(InferRequest("m", inputs), signature)
    request = HttpRequest("POST", call.path, "", {}, b"".join(call.parts))
    methods, request.params = PathTable(KSERVE.endpoints).find(call.path)
    opened = methods["POST"].open(request)
    assert opened.action.decode is not None
    understood, reply_form = opened.action.decode(opened, signature)
    assert understood.inputs == inputs
    answer = opened.action.encode(reply_form, InferResponse("m", answers))
    response = KSERVE_CALLS[Operation.INFER].decode(form, received(answer))
    assert response.outputs == answers


def _one_nan(tensor: Tensor) -> Tensor:
    if tensor.datatype not in (Datatype.FP16, Datatype.FP32, Datatype.FP64):
        return tensor
    array = tensor.numpy()
    with np.errstate(invalid="ignore"):
        return Tensor.from_numpy(tensor.name, np.where(np.isnan(array), array.dtype.type("nan"), array))


# --- readiness, metadata, lists


@pytest.mark.parametrize(
    ("reply", "ready", "text"),
    [
        (answered({"name": "m", "ready": True}), True, ""),
        (answered({"name": "m", "ready": "True"}), True, ""),
        (answered({"name": "m", "ready": False}), False, "not ready"),
        (answered({"error": "Model m is not ready."}, 503), False, "Model m is not ready."),
        (answered({"error": "no m"}, 404), False, "no m"),
        (answered({"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}), True, ""),
        (
            answered(
                {
                    "model_version_status": [
                        {"version": "1", "state": "END", "status": {"error_message": "bad"}}
                    ]
                }
            ),
            False,
            "bad",
        ),
        (answered({"model_version_status": []}), False, "no versions"),
    ],
)
def test_readiness(reply: HttpReply, ready: bool, text: str) -> None:
    call = HTTP_CALLS[Operation.MODEL_READY]
    _, form = call.encode(ModelRef("m"), None)
    found = call.decode(form, reply)
    assert (found.ready, text in found.reason) == (ready, True)


@pytest.mark.parametrize(
    ("reply", "ready"),
    [
        (answered({"models": ["m"]}), True),
        (answered({"models": []}), False),
        (answered({"error": "Missing model name in request."}, 400), True),
        (answered({"object": "list"}), True),
        (answered(b"hello"), True),
        (answered({"error": "the server is shutting down"}, 503), False),
    ],
)
def test_the_readiness_of_a_server(reply: HttpReply, ready: bool) -> None:
    assert HTTP_CALLS[Operation.READY].decode(None, reply).ready is ready


@pytest.mark.parametrize("camel", [False, True])
def test_metadata(camel: bool) -> None:
    names = (
        ("modelSpec", "signatureDef", "tensorShape")
        if camel
        else ("model_spec", "signature_def", "tensor_shape")
    )
    spec, signatures, shape = names
    info = {"dtype": "DT_FLOAT", shape: {"dim": [{"size": "-1"}, {"size": "3"}]}, "name": "x:0"}
    unknown = {"dtype": "DT_STRING", shape: {"unknown_rank" if not camel else "unknownRank": True}}
    signature = {"inputs": {"x": info, "s": unknown}, "outputs": {"y": info}, "method_name": "m"}
    document = {
        spec: {"name": "m", "version": "3"},
        "metadata": {"signature_def": {signatures: {"serving_default": signature, "other": {}}}},
    }
    call = HTTP_CALLS[Operation.MODEL_METADATA]
    _, form = call.encode(ModelRef("m"), None)
    found = call.decode(form, answered(document))
    assert found.signature.inputs == (
        TensorSpec("x", Datatype.FP32, (-1, 3)),
        TensorSpec("s", Datatype.BYTES, ()),
    )
    assert found.leeway.shapes == {"s"}
    for broken in ({}, {"metadata": {"signature_def": {signatures: {}}}}):
        with pytest.raises(InferenceError) as caught:
            call.decode(form, answered(broken))
        assert caught.value.code is ErrorCode.BAD_UPSTREAM


def test_servers() -> None:
    call = HTTP_CALLS[Operation.SERVER_METADATA]
    assert call.decode(None, answered({"models": ["a"]})).name == "kserve"
    assert call.decode(None, answered({"error": "Missing model name in request."}, 400)).name == "tensorflow"
    for other in (answered({"error": "Not Found"}, 404), answered({"name": "triton"}), answered(b"", 400)):
        with pytest.raises(InferenceError):
            call.decode(None, other)
    listed = KSERVE_CALLS[Operation.REPOSITORY_INDEX].decode(None, answered({"models": ["a", "b"]}))
    assert [model.name for model in listed] == ["a", "b"]


@pytest.mark.parametrize(("code", "reachable"), [(3, True), (5, True), (12, False), (14, False)])
def test_servers_over_grpc(code: int, reachable: bool) -> None:
    answer = GrpcAnswer(code=code, details="text")
    assert GRPC_CALLS[Operation.READY].decode(None, answer).ready is reachable


def test_classes_and_ranks_are_refused() -> None:
    request = InferRequest("m", (X,), (RequestedOutput("y", classification=2),))
    with pytest.raises(InferenceError) as caught:
        GRPC_CALLS[Operation.INFER].encode(request, ONE)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_parts_of_a_large_message_are_not_copied() -> None:
    large = Tensor.from_numpy("x", np.zeros((1, 1 << 16), np.float32))
    call, _ = GRPC_CALLS[Operation.INFER].encode(InferRequest("m", (large,)), ONE)
    assert any(part is large.data for part in call.parts)
