"""Recorded requests and answers of other programs: KServe's client and server, and ovmsclient."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.tfserving.client import KSERVE_CALLS
from interlingua.protocols.wire import GrpcRequest, HttpReply, HttpRequest, parts_of
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelRef,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.tfserving import MESSAGES
from tests.protocols.tfserving import exchange

GOLDEN = Path(__file__).parents[2] / "golden" / "tfserving"
RECORDED: dict[str, list[dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.json"))
}
KSERVE = {each["name"]: each for each in RECORDED["kserve_http"]}
ROWS = exchange.one(Datatype.FP64, -1, 2)
NAMED = Signature(
    tuple(TensorSpec(name, Datatype.FP64, (-1, 2)) for name in ("a", "b")),
    tuple(TensorSpec(name, Datatype.FP64, (-1, 2)) for name in ("same", "other")),
)


def request_in(text: str) -> HttpRequest:
    """A recorded request as a transport hands it over."""
    head, _, body = text.partition("\r\n\r\n")
    line, *lines = head.split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return HttpRequest(method, path, "", headers, body.encode())


def reply_in(recorded: dict[str, Any]) -> HttpReply:
    status = int(recorded["status"].split()[1])
    return HttpReply(status, dict(recorded["headers"]), recorded["body"]["text"].encode())


def tensor(name: str, values: Any) -> Tensor:
    return Tensor.from_numpy(name, np.array(values, np.float64))


# --- what we answer to the recorded clients


@pytest.mark.parametrize(
    "name", ["live", "model_ready", "predict_instances", "predict_event", "predict_unknown"]
)
async def test_answers_like_those_of_kserve(name: str) -> None:
    recorded = KSERVE[name]
    server = exchange.pipeline("kserve", {"rows": ROWS}).handlers["http"]
    request = request_in(recorded["request"]["text"])
    answer = server.head(request) or await server.serve(request)
    expected = reply_in(recorded)
    assert answer.status == expected.status
    ours, theirs = json.loads(b"".join(parts_of(answer))), json.loads(expected.body)
    if "error" in theirs:
        assert ours["error"].startswith(theirs.pop("error"))
        del ours["error"]
    assert ours == theirs
    headers = dict(answer.headers)
    own = {"ce-id", "ce-time"}  # of each answer
    names = [header for header in expected.headers if header.startswith("ce-")]
    assert own <= headers.keys() or not names
    for each in set(names) - own:
        assert headers[each] == expected.headers[each]


VALUES: dict[str, tuple[str, Datatype, Any]] = {
    "predict_floats": ("floats", Datatype.FP32, [[0.1, -2.5], [3e38, 1.5]]),
    "predict_int8": ("ints", Datatype.INT8, [-128, 127]),
    "predict_texts": ("texts", Datatype.BYTES, [b"a", b"\xff"]),
    "predict_not_finite": ("row", Datatype.FP32, [np.nan, np.inf]),
    "predict_list": ("row", Datatype.FP32, [1.5, 2.5]),
    "predict_version": ("row", Datatype.FP32, [1, 2]),
}


def of_calls(transport: str) -> list[Any]:
    return [pytest.param(transport, each, id=f"{transport}-{each['name']}")
            for each in RECORDED[f"ovmsclient_{transport}"]]  # fmt: skip


@pytest.mark.parametrize(("transport", "recorded"), of_calls("http") + of_calls("grpc"))
async def test_requests_of_ovmsclient(transport: str, recorded: dict[str, Any]) -> None:
    pipeline = exchange.pipeline()
    if transport == "http":
        request = request_in(recorded["request"]["text"])
        handler = pipeline.handlers["http"]
        answer = handler.head(request) or await handler.serve(request)
        document = json.loads(b"".join(parts_of(answer)))
        assert answer.status == 200, document
        found = document.get("outputs", document)
    else:
        message = b64decode(recorded["request_bytes"])
        reply = await pipeline.handlers["grpc"].serve(GrpcRequest(recorded["method"], message))
        assert reply.code == 0, reply.details
        found = reply.message
    if recorded["name"] not in VALUES:
        assert found
        return
    model, datatype, values = VALUES[recorded["name"]]
    expected = Tensor.from_numpy("x", np.array(values, datatype.dtype))
    if transport == "http":
        elements = [b64decode(each["b64"]) if type(each) is dict else each for each in found]
        got = Tensor.from_numpy("x", np.array(elements, datatype.dtype))
    else:
        response = MESSAGES["tensorflow.serving.PredictResponse"].FromString(found)
        assert response.model_spec.name == model
        proto = response.outputs["x"]
        field = {Datatype.INT8: "int_val", Datatype.BYTES: "string_val"}.get(datatype, "float_val")
        shape = [dim.size for dim in proto.tensor_shape.dim]
        got = Tensor.from_numpy("x", np.array(list(getattr(proto, field)), datatype.dtype).reshape(shape))
    assert got == expected


# --- what our client reads from the recorded server


def test_our_client_sends_what_that_of_kserve_sends() -> None:
    theirs = request_in(KSERVE["predict_instances"]["request"]["text"])
    request = InferRequest("rows", (tensor("x", [[1.5, -2], [0.1, 3e38]]),))
    call, _ = KSERVE_CALLS[Operation.INFER].encode(request, ROWS)
    assert (call.method, call.path) == (theirs.method, theirs.path)
    assert json.loads(b"".join(call.parts)) == json.loads(theirs.body)


@pytest.mark.parametrize(
    ("name", "signature", "expected"),
    [
        ("predict_instances", ROWS, (tensor("x", [[1.5, -2], [0.1, 3e38]]),)),
        ("predict_named", NAMED, (tensor("same", [[1, 2]]), tensor("other", [[3, 4.5]]))),
        ("predict_event", ROWS, (tensor("x", [[1, 2]]),)),
    ],
)
def test_predictions(name: str, signature: Signature, expected: tuple[Tensor, ...]) -> None:
    found = KSERVE_CALLS[Operation.INFER].decode(("rows", signature), reply_in(KSERVE[name]))
    assert found.outputs == expected


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("predict_unknown", ErrorCode.NOT_FOUND, "Model with name nothing does not exist."),
        ("predict_failed", ErrorCode.MODEL_FAILED, "'dict' object has no attribute 'inputs'"),
    ],
)
def test_errors(name: str, code: ErrorCode, words: str) -> None:
    with pytest.raises(InferenceError) as caught:
        KSERVE_CALLS[Operation.INFER].decode(("m", ROWS), reply_in(KSERVE[name]))
    assert (caught.value.code, words in caught.value.message) == (code, True)


@pytest.mark.parametrize(("name", "ready"), [("model_ready", True), ("model_ready_unknown", False)])
def test_readiness(name: str, ready: bool) -> None:
    call = KSERVE_CALLS[Operation.MODEL_READY]
    assert call.decode(ModelRef("rows"), reply_in(KSERVE[name])).ready is ready


def test_lists() -> None:
    found = KSERVE_CALLS[Operation.REPOSITORY_INDEX].decode(None, reply_in(KSERVE["list"]))
    assert {"rows", "named"} <= {model.name for model in found}
