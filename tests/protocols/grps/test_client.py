"""What is asked of an upstream, and its replies: whatever they are, a result or an ``InferenceError``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.grps import DIALECT
from interlingua.protocols.grps import message as own
from interlingua.protocols.grps.client import flavor_of
from interlingua.protocols.grps.passthrough import WholeMessage
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpCall,
    HttpReply,
)
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
from tests.conformance.mutations import mutated
from tests.standins.grps_contract import GrpsMessage, gtensors, to_json
from tests.standins.grps_server import ALL, GrpsServer

CALLS = {name: DIALECT.bindings[name].calls for name in ("http", "grpc", "brpc")}
QUESTION = InferRequest("m", (Tensor.from_numpy("x", np.array([1.5], np.float32)),), version="2")
ARGUMENTS = {
    Operation.INFER: QUESTION,
    Operation.INFER_STREAM: QUESTION,
    Operation.MODEL_METADATA: ModelRef("simple"),
    Operation.MODEL_READY: ModelRef("simple"),
}
SERVER = GrpsServer()
REPLIES = [
    SERVER.succeeded(gtensors("m", **ALL)),
    SERVER.succeeded(GrpsMessage(str_data="said")),
    SERVER.succeeded(GrpsMessage(gmap={"s_i32": {"k": 1}, "s_b": {"b": b"\xff"}})),
    SERVER.server_metadata("http"),
    SERVER.health("http", "ready"),
    GrpsMessage(),
]
MESSAGES = {
    Operation.INFER: "Predict",
    Operation.INFER_STREAM: "PredictStreaming",
    Operation.LIVE: "CheckLiveness",
    Operation.READY: "CheckReadiness",
    Operation.MODEL_READY: "CheckReadiness",
    Operation.SET_ONLINE: "Online",
    Operation.SET_OFFLINE: "Offline",
    Operation.SERVER_METADATA: "ServerMetadata",
    Operation.MODEL_METADATA: "ServerMetadata",
    Operation.REPOSITORY_INDEX: "ServerMetadata",
}
PATHS = {
    "Predict": "infer/predict",
    "PredictStreaming": "infer/predict",
    "CheckLiveness": "health/live",
    "CheckReadiness": "health/ready",
    "Online": "health/online",
    "Offline": "health/offline",
    "ServerMetadata": "metadata/server",
}

calls = pytest.mark.parametrize(
    ("transport", "operation"),
    [(transport, operation) for transport, table in CALLS.items() for operation in table],
    ids=str,
)


def requested(transport: str, operation: Operation) -> tuple[Any, Any]:
    return CALLS[transport][operation].encode(ARGUMENTS.get(operation), None)


@calls
def test_what_is_sent(transport: str, operation: Operation) -> None:
    request, _ = requested(transport, operation)
    method = MESSAGES[operation]
    if isinstance(request, HttpCall):
        assert request.path == f"/grps/v1/{PATHS[method]}"
        assert request.method == ("POST" if operation in (Operation.INFER, Operation.INFER_STREAM) else "GET")
        return
    message = GrpsMessage.FromString(bytes(request.message))
    assert message.model == ("m-2" if operation in (Operation.INFER, Operation.INFER_STREAM) else "")
    if isinstance(request, GrpcRequest):
        assert request.method == f"/grps.protos.v1.GrpsService/{method}"
    else:
        assert isinstance(request, BrpcRequest)
        assert (request.service, request.method) == ("grps.protos.v1.GrpsBrpcService", method)


def test_over_brpc_there_are_no_streams() -> None:
    assert set(CALLS["grpc"]) == set(CALLS["http"]) == set(MESSAGES)
    assert set(CALLS["brpc"]) == set(MESSAGES) - {Operation.INFER_STREAM}


@calls
@given(data=st.data())
def test_broken_replies(transport: str, operation: Operation, data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(REPLIES))
    form = requested(transport, operation)[1]
    written = to_json(message, "py") if transport == "http" else message.SerializeToString()
    body = data.draw(st.binary(max_size=30) | mutated(written))
    reply: Any
    if transport == "http":
        types = ["application/json", "application/octet-stream", "text/html", ""]
        headers = {
            "content-type": data.draw(st.sampled_from(types)),
            "x-bd-error-code": data.draw(st.sampled_from(["", "1003", "²", "9" * 5000])),
        }
        reply = HttpReply(data.draw(st.sampled_from([200, 200, 404, 500, 503])), headers, body)
    elif transport == "grpc":
        reply = GrpcAnswer(body, data.draw(st.sampled_from([0, 0, 13, 99])), "words")
    else:
        reply = BrpcAnswer(body)
    # any other error fails the test
    with suppress(InferenceError):
        CALLS[transport][operation].decode(form, reply)
        if transport == "http" and operation is Operation.INFER_STREAM:
            CALLS[transport][operation].decode(form, HttpReply(reply.status, reply.headers, b""))


@pytest.mark.parametrize("whole", [False, True], ids=["decoded", "passed"])
def test_tensors_under_a_status_that_is_no_success_mean_nothing(whole: bool) -> None:
    """Whether they are read or not."""
    spec = TensorSpec("0", Datatype.UINT8, (-1,))
    signature = Signature((spec,), (spec,))
    tensor = Tensor.from_numpy("0", np.uint8([0]))
    form = WholeMessage(own.GrpsMessage(own.Kind.GTENSORS)) if whole else None
    request = InferRequest("m", (tensor,), wire_form=form)
    call = CALLS["http"][Operation.INFER]
    tensors = b'[{"dtype":"DT_UINT8","flat_uint8":[0]},{"name":"00","dtype":"DT_UINT8","flat_uint8":[0]}]'
    status = b'{"code":200,"msg":"OK","status":"SUCCESS"}'
    body = b'{"status":%b,"gtensors":{"tensors":%b}}' % (status, tensors)
    reply = HttpReply(400, {"content-type": "application/json"}, body)
    with pytest.raises(InferenceError, match="the upstream answered HTTP status 400"):
        call.decode(call.encode(request, signature)[1], reply)


def test_a_flavor_by_the_order_of_its_configuration() -> None:
    for flavor in ("py", "cpp"):
        assert flavor_of(GrpsServer(flavor).server_metadata("http").str_data) == flavor
    assert flavor_of("# interface:\nmodels:\ninterface:") == "py"
    assert flavor_of("") == "py"


@pytest.mark.parametrize("operation", CALLS["brpc"], ids=str)
def test_an_empty_frame_of_brpc_is_no_answer(operation: Operation) -> None:
    _, form = requested("brpc", operation)
    with pytest.raises(InferenceError) as raised:
        CALLS["brpc"][operation].decode(form, BrpcAnswer(b""))
    assert raised.value.code is ErrorCode.BAD_UPSTREAM
