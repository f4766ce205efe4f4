"""grps over HTTP, gRPC and bRPC: valid responses and refusals, and the rules of the HTTP wire.

The message has the status of a request over every transport; over HTTP the status line may repeat it. The two
original servers differ; only behaviour that they share is a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import strategies as st

from interlingua.protocols.grps.client_http import HTTP_CALLS
from interlingua.protocols.grps.client_rpc import BRPC_CALLS, GRPC_CALLS
from interlingua.protocols.wire import BrpcAnswer, GrpcAnswer
from interlingua.schemas import Datatype, InferRequest, Operation
from interlingua.schemas.grps import MESSAGES
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, expect, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.replies import (
    http_reply,
    http_request,
    json_object,
    media_type,
    parsed,
)
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wire import Mistake, Streams, Wire

_HTTP = Group("grps-http", infers=True)

_MESSAGE: Any = MESSAGES["grps.protos.v1.GrpsMessage"]
_DATA = ("bin_data", "str_data", "gtensors", "ndarray", "gmap")
_FIELDS = {
    f"DT_{name}": f"flat_{name.lower()}"
    for name in (
        "UINT8", "INT8", "INT16", "INT32", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "STRING",
    )
}  # fmt: skip

_EXEMPT = {"refusals/negative-dimension": "shapes are unsigned"}

Document = dict[str, Any]


def _check_status(status: Mapping[str, Any], exchange: WireExchange) -> None:
    """A failure has a code, a text and the flag FAILURE."""
    code = status.get("code", 0)
    expect(status.get("status") == "FAILURE", f"the flag {status.get('status')!a} of a failure", exchange)
    expect(400 <= code < 600, f"code {code} of a failure", exchange)
    expect(status.get("msg"), "a failure without a text", exchange)


def _check_tensor(tensor: Mapping[str, Any], exchange: WireExchange) -> None:
    name = tensor.get("name", "")
    field = _FIELDS.get(tensor.get("dtype", ""))
    if field is None:
        raise ViolationError(f"tensor '{name}' has the dtype {tensor.get('dtype')!a}", exchange)
    strange = [key for key in tensor if key.startswith("flat_") and key != field and tensor[key]]
    expect(not strange, f"tensor '{name}' of {tensor['dtype']} has {', '.join(strange)}", exchange)
    count, have = math.prod(tensor.get("shape", ())), len(tensor.get(field, ()))
    expect(count == have, f"tensor '{name}' has {have} elements for {count}", exchange)


# --- HTTP


def _document(exchange: WireExchange) -> Document | None:
    """The message in JSON; None if the body is plain bytes."""
    reply = http_reply(exchange)
    if media_type(reply) == "application/octet-stream":
        return None
    return json_object(exchange, bytes(reply.body))


def _http_succeeded(exchange: WireExchange) -> bool:
    if exchange.reply is None or http_reply(exchange).status != 200:
        return False
    document = _document(exchange)
    return document is None or document.get("status", {}).get("status") != "FAILURE"


def _check_http_error(exchange: WireExchange, mistake: Mistake) -> None:
    """A message in JSON with the status FAILURE; the status line has 200 or the same code."""
    reply = http_reply(exchange)
    document = _document(exchange)
    if document is None:
        raise ViolationError("an error as plain bytes", exchange)
    status = document.get("status", {})
    _check_status(status, exchange)
    code = status["code"]
    expect(reply.status in (200, code), f"status {reply.status} with the code {code}", exchange)


def _check_http_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Plain bytes, or a message in JSON with the status SUCCESS and complete tensors."""
    expect(http_reply(exchange).status == 200, "an answer with another status than 200", exchange)
    document = _document(exchange)
    if document is None:
        return
    status = document.get("status", {})
    success = {"code": 200, "status": "SUCCESS"}
    expect(success.items() <= status.items(), f"an answer with the status {status}", exchange)
    data = [name for name in _DATA if name in document]
    expect(len(data) <= 1, f"an answer with {' and '.join(data)}", exchange)
    for tensor in document.get("gtensors", {}).get("tensors", ()):
        _check_tensor(tensor, exchange)
        if tensor["dtype"] == "DT_INT64":
            texts = all(isinstance(number, str) for number in tensor.get("flat_int64", ()))
            expect(texts, "64-bit integers are strings in JSON", exchange)


@_HTTP("Unknown members are ignored.")
def unknown_members(server: ServerUnderTest, draw: Draw) -> None:
    sent = http_request(server.encoded(server.sample()))
    document = _as_json(server)
    right = _tensors(server, sent, document)
    tensors = document["gtensors"]["tensors"]
    place = draw(st.sampled_from((document, tensors[0])))
    place[draw(st.sampled_from(("flat_double", "s_t", "more")))] = draw(st.sampled_from(([1.5], "text", 3)))
    have = _tensors(server, sent, document)
    expect(have == right, "with an unknown member the answer differs", server.last)


@_HTTP("Any Content-Type but the two of the dialect is refused.")
def content_types(server: ServerUnderTest, draw: Draw) -> None:
    sent = http_request(server.encoded(server.sample()))
    media = draw(st.sampled_from(("text/plain", "application/xml", "application/x-www-form-urlencoded")))
    exchange = server.send(replace(sent, headers={"Content-Type": media}))
    # a refusal needs no JSON
    accepted = http_reply(exchange).status < 400 and _http_succeeded(exchange)
    expect(not accepted, f"the Content-Type {media} was accepted", exchange)


@_HTTP("Nested lists are a tensor of FLOAT32, and come back as such on request.")
def nested_lists(server: ServerUnderTest, draw: Draw) -> None:
    [spec, *more] = server.known.inputs
    echoes = any(relation.kind == "echo" for relation in server.relations)
    fits = not more and spec.datatype is Datatype.FP32 and echoes
    skip_if(not fits, "the model does not answer with its one input of FP32")
    rank = len(spec.shape)
    numbers = draw(st.lists(st.integers(-1000, 1000).map(lambda number: number / 4), min_size=1, max_size=4))
    nested: Any = numbers
    for _ in range(rank - 1):
        nested = [nested]
    document = {"model": _as_json(server).get("model", ""), "ndarray": nested}
    sent = http_request(server.encoded(server.sample()))
    exchange = server.send(replace(sent, query="return-ndarray=true", parts=[orjson.dumps(document)]))
    answer = _document(exchange) or {}
    expect(answer.get("ndarray") == nested, f"{nested} came back as {answer.get('ndarray')}", exchange)


def _as_json(server: ServerUnderTest) -> Document:
    sent = server.encoded(server.sample())
    try:
        document: Document = orjson.loads(server.form.body(sent))
    except orjson.JSONDecodeError:
        raise InapplicableError("the request is plain bytes") from None
    skip_if("gtensors" not in document, "the request has no tensors")
    return document


def _tensors(server: ServerUnderTest, sent: Any, document: Document) -> Any:
    exchange = server.send(server.form.with_body(sent, orjson.dumps(document)))
    expect(_http_succeeded(exchange), "a good request was refused", exchange)
    _check_http_answer(server.request(()), exchange)
    answer = _document(exchange)
    return bytes(http_reply(exchange).body) if answer is None else {name: answer.get(name) for name in _DATA}


# --- gRPC and bRPC


def _message(exchange: WireExchange) -> Any:
    """The message of the reply. Raises ``ViolationError`` for a status of the transport."""
    reply = exchange.reply
    if not isinstance(reply, GrpcAnswer | BrpcAnswer) or reply.code:
        raise ViolationError("an answer without a message", exchange)
    return parsed(_MESSAGE, bytes(reply.message), exchange)


def _rpc_succeeded(exchange: WireExchange) -> bool:
    reply = exchange.reply
    if not isinstance(reply, GrpcAnswer | BrpcAnswer) or reply.code:
        return False
    return bool(_message(exchange).status.status != 2)


def _check_rpc_error(exchange: WireExchange, mistake: Mistake) -> None:
    """OK as the transport's status, FAILURE as the message's. The transport refuses bytes that are not a
    message."""
    reply = exchange.reply
    if mistake is Mistake.MALFORMED and (reply is None or reply.code):  # type: ignore[union-attr]
        return
    status = _message(exchange).status
    flag = "FAILURE" if status.status == 2 else status.status
    _check_status({"code": status.code, "msg": status.msg, "status": flag}, exchange)


def _check_rpc_answer(request: InferRequest, exchange: WireExchange) -> None:
    """The code 200, the flag SUCCESS and complete tensors."""
    message = _message(exchange)
    status = message.status
    expect((status.code, status.status) == (200, 1), f"code {status.code}, flag {status.status}", exchange)
    datatypes = _MESSAGE.DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_number
    for tensor in message.gtensors.tensors:
        fields = {field.name: value for field, value in tensor.ListFields()}
        named = datatypes.get(tensor.dtype)
        _check_tensor({**fields, "dtype": named.name if named else ""}, exchange)


_RPC = Wire(
    _rpc_succeeded,
    _check_rpc_error,
    _check_rpc_answer,
    {"message": BRPC_CALLS[Operation.INFER]},
    exempt=_EXEMPT,
)

WIRES = {
    "http": Wire(
        _http_succeeded,
        _check_http_error,
        _check_http_answer,
        {"JSON": HTTP_CALLS[Operation.INFER]},
        tuple(_HTTP.checks),
        textual=frozenset({"JSON"}),
        exempt=_EXEMPT,
        streams=Streams(HTTP_CALLS[Operation.INFER_STREAM]),
    ),
    "grpc": replace(
        _RPC,
        calls={"message": GRPC_CALLS[Operation.INFER]},
        streams=Streams(GRPC_CALLS[Operation.INFER_STREAM]),
    ),
    "brpc": _RPC,
}
