"""GraphPipe's calls to an upstream: where they go, and what the answers mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interlingua.protocols.graphpipe import codec, metadata
from interlingua.protocols.graphpipe.client import HTTP_CALLS
from interlingua.protocols.wire import HttpCall, HttpReply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    RequestedOutput,
    Sequence,
    Signature,
    Tensor,
)
from tests.strategies import signature_of

X = Tensor.from_numpy("x", np.arange(4, dtype=np.int32))
Y, Z = X.renamed("y"), X.renamed("z")
SIGNATURE = signature_of([X], [Y, Z])
PROBES = (Operation.LIVE, Operation.READY, Operation.MODEL_READY)
BOTH = b"".join(codec.encode_response(None, (Y, Z)))


def sent(operation: Operation, argument: Any, signature: Signature | None = None) -> tuple[HttpCall, Any]:
    request, form = HTTP_CALLS[operation].encode(argument, signature)
    return request, form


def answered(operation: Operation, argument: Any, reply: HttpReply, signature: Any = None) -> Any:
    _, form = sent(operation, argument, signature)
    return HTTP_CALLS[operation].decode(form, reply)


def ok(body: bytes) -> HttpReply:
    return HttpReply(200, {}, body)


@pytest.mark.parametrize(
    ("model", "version", "path"),
    [
        ("", "", "/"),
        ("digits", "", "/graphpipe/digits"),
        ("digits", "3", "/graphpipe/digits/3"),
        ("a/b é", "1", "/graphpipe/a%2Fb%20%C3%A9/1"),
    ],
)
def test_the_path_names_the_model(model: str, version: str, path: str) -> None:
    calls = [sent(Operation.INFER, InferRequest(model, (X,), version=version))]
    calls += [
        sent(operation, ModelRef(model, version))
        for operation in (Operation.MODEL_METADATA, Operation.MODEL_READY)
    ]
    for request, _ in calls:
        assert (request.method, request.path) == ("POST", path)


def test_a_version_of_a_model_without_a_name() -> None:
    with pytest.raises(InferenceError, match="version '3'") as caught:
        sent(Operation.INFER, InferRequest("", (X,), version="3"))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


@pytest.mark.parametrize("asked", [None, (), ("z",), ("z", "y")])
def test_inference(asked: tuple[str, ...] | None) -> None:
    outputs = None if asked is None else tuple(RequestedOutput(name) for name in asked)
    request = InferRequest(
        "m", (X,), outputs, version="2", id="7", parameters={"config": "c"}, sequence=Sequence(1)
    )
    message, form = sent(Operation.INFER, request, SIGNATURE)
    back, names = codec.decode_request(codec.open_request(b"".join(message.parts)), SIGNATURE)
    assert (back.inputs, back.parameters) == ((X,), {"config": "c"})
    assert names == (asked or None)
    answer = {None: (Y, Z), (): (Y, Z), ("z",): (Z,), ("z", "y"): (Z, Y)}[asked]
    reply = ok(b"".join(codec.encode_response(None, answer)))
    assert HTTP_CALLS[Operation.INFER].decode(form, reply) == InferResponse(
        "m", () if asked == () else answer, version="2"
    )


def test_metadata() -> None:
    told = ModelMetadata("m", SIGNATURE, ("2",), "onnxruntime_onnx", "words")
    reply = ok(metadata.encode_metadata(metadata.describe(told)))
    back = answered(Operation.MODEL_METADATA, ModelRef("m"), reply)
    assert (back.name, back.signature) == ("m", SIGNATURE)
    # the version that is told is the server's
    assert (back.versions, back.platform) == ((), "interlingua")
    assert back.description == "words; platform onnxruntime_onnx, version 2"


@pytest.mark.parametrize("operation", PROBES)
def test_a_probe_requests_the_metadata(operation: Operation) -> None:
    argument = ModelRef("m") if operation is Operation.MODEL_READY else None
    request, _ = sent(operation, argument)
    assert codec.open_request(b"".join(request.parts)).table is None
    # a server that does not know the types of its own model is ready nevertheless
    port = metadata.Port("a", "", (), 0)
    told = ok(metadata.encode_metadata(metadata.Description("m", "", "", "", (port,), ())))
    assert answered(operation, argument, told) == Readiness(True)
    assert answered(operation, argument, HttpReply(503, {}, b"loading\n")) == Readiness(False, "loading")
    page = answered(operation, argument, ok(b"<html>"))
    assert not page.ready
    assert page.reason.startswith("the upstream's answer: ")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.INVALID_TENSOR),
        (404, ErrorCode.NOT_FOUND),
        (422, ErrorCode.UNREPRESENTABLE),
        (429, ErrorCode.OVERLOADED),
        (500, ErrorCode.MODEL_FAILED),
        (502, ErrorCode.BAD_UPSTREAM),
        (503, ErrorCode.UNAVAILABLE),
        (504, ErrorCode.DEADLINE_EXCEEDED),
        (302, ErrorCode.BAD_UPSTREAM),
        (418, ErrorCode.BAD_UPSTREAM),
        (204, ErrorCode.BAD_UPSTREAM),
    ],
)
@pytest.mark.parametrize("operation", [Operation.INFER, Operation.MODEL_METADATA])
def test_an_error_keeps_the_words_of_the_upstream(operation: Operation, status: int, code: ErrorCode) -> None:
    argument = InferRequest("m", (X,)) if operation is Operation.INFER else ModelRef("m")
    with pytest.raises(InferenceError, match="^Could not find input 'é'$") as caught:
        answered(operation, argument, HttpReply(status, {}, "Could not find input 'é'\n".encode()))
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("body", "said"),
    [(b"", "^the upstream answered HTTP status 500 without"), (b"\xff\x00" * 9000, r"\\xff")],
)
def test_an_error_without_words(body: bytes, said: str) -> None:
    with pytest.raises(InferenceError, match=said) as caught:
        answered(Operation.INFER, InferRequest("m", (X,)), HttpReply(500, {}, body))
    assert len(caught.value.message) < 10_000


def test_an_error_in_band() -> None:
    body = codec.encode_error(InferenceError(ErrorCode.OVERLOADED, "too busy"))
    with pytest.raises(InferenceError, match="^too busy$") as caught:
        answered(Operation.INFER, InferRequest("m", (X,)), ok(body))
    assert caught.value.code is ErrorCode.OVERLOADED


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the upstream's answer: the GraphPipe message is empty"),
        (BOTH[:-9], "outside of its"),
        (BOTH, "2 tensors without names where 1 outputs were expected"),
    ],
)
def test_an_answer_that_makes_no_sense_is_the_upstreams_fault(body: bytes, said: str) -> None:
    request = InferRequest("m", (X,), (RequestedOutput("y"),) if body is BOTH else None)
    with pytest.raises(InferenceError, match=said) as caught:
        answered(Operation.INFER, request, ok(body), SIGNATURE)
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


def test_a_bool_answer_comes_back_as_declared() -> None:
    truth = Tensor.from_numpy("y", np.array([True, False]))
    reply = ok(b"".join(codec.encode_response(None, (truth,))))
    response = answered(Operation.INFER, InferRequest("m", (X,)), reply, signature_of([X], [truth]))
    assert response.outputs == (truth,)
    wrong = Tensor.from_numpy("y", np.array([2], dtype=np.uint8))
    reply = ok(b"".join(codec.encode_response(None, (wrong,))))
    with pytest.raises(InferenceError, match="'y' of datatype BOOL") as caught:
        answered(Operation.INFER, InferRequest("m", (X,)), reply, signature_of([X], [truth]))
    assert caught.value.code is ErrorCode.BAD_UPSTREAM
