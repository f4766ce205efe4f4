"""Both ends of a gRPC exchange without a network. Messages are the stand-in's classes, not the project's."""

from __future__ import annotations

from typing import Any

from interlingua.protocols.dialect import Opened
from interlingua.protocols.trtis import DIALECT
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import Context, Datatype, InferenceError, InferResponse, Signature, TensorSpec
from tests.standins.trtis_contract import SERVICE, code_name, message, parse

ENDPOINTS = {endpoint.method: endpoint for endpoint in DIALECT.bindings["grpc"].endpoints}
CALLS = DIALECT.bindings["grpc"].calls
CONTEXT = Context(server_id="inference:0", request_number=7)

BATCHED = Signature(
    (TensorSpec("a", Datatype.INT32, (-1, 2)), TensorSpec("s", Datatype.BYTES, (-1, -1))),
    (
        TensorSpec("x", Datatype.INT32, (-1, 2)),
        TensorSpec("t", Datatype.BYTES, (-1, -1)),
        TensorSpec("p", Datatype.FP32, (-1, 3), labels=("ant", "bee")),
    ),
    max_batch_size=4,
)


def asking(rpc: str, asked: Any) -> GrpcRequest:
    """A call of ``rpc`` as received; ``asked`` is a message or bytes."""
    wire = asked if isinstance(asked, bytes) else asked.SerializeToString()
    return GrpcRequest(SERVICE + rpc, wire, context=CONTEXT)


def opened(rpc: str, asked: Any) -> Opened[GrpcAnswer]:
    """The request as the endpoint of ``rpc`` opens it."""
    return ENDPOINTS[SERVICE + rpc].open(asking(rpc, asked))


def decoded(asked: Any, signature: Signature = BATCHED) -> tuple[Any, Any]:
    """The IR request and the reply form of an inference."""
    found = opened("Infer", asked)
    assert found.action.decode is not None
    return found.action.decode(found, signature)


def answered(asked: Any, response: InferResponse, signature: Signature = BATCHED) -> Any:
    """``response`` as the answer to an inference."""
    _, form = decoded(asked, signature)
    return parse("InferResponse", bytes(opened("Infer", asked).action.encode(form, response).message))


def reported(rpc: str, asked: Any, result: Any) -> Any:
    """``result`` of an operation as the answer to ``rpc``, which tells success."""
    found = opened(rpc, asked)
    answer = found.action.encode(found, result)
    assert answer.code == 0
    reply = parse(f"{rpc.removeprefix('Stream')}Response", bytes(answer.message))
    assert code_name(reply.request_status) == "SUCCESS"
    assert (reply.request_status.server_id, reply.request_status.request_id) == ("inference:0", 7)
    return reply


def failed(rpc: str, asked: Any, error: InferenceError | None = None) -> tuple[str, str, Any]:
    """The code and the message that a failed request is told, and the answer: by ``error``, or by what
    opening (for an inference: or decoding) it raises."""
    request, found = asking(rpc, asked), None
    endpoint = ENDPOINTS[SERVICE + rpc]
    try:
        found = endpoint.open(request)
        if error is None:
            assert found.action.decode is not None
            found.action.decode(found, BATCHED)
            raise AssertionError("nothing is wrong with this request")
        raise error
    except InferenceError as raised:
        answer = endpoint.fail(request, found, raised)
    assert answer.code == 0, answer.details
    reply = parse(f"{rpc.removeprefix('Stream')}Response", bytes(answer.message))
    status = reply.request_status
    assert (status.server_id, status.request_id) == ("inference:0", 7)
    return code_name(status), status.msg, reply


def header(batch_size: int = 2, **fields: Any) -> Any:
    """An InferRequestHeader."""
    return message("InferRequestHeader", batch_size=batch_size, **fields)


def infer(head: Any, *raw_input: bytes, model: str = "m", version: int = -1) -> Any:
    """An InferRequest."""
    return message(
        "InferRequest", model_name=model, model_version=version, meta_data=head, raw_input=raw_input
    )
