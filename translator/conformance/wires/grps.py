"""grps, as it must stand on the wire: over HTTP, gRPC and bRPC.

What became of a request is told in the message, whatever the transport; over HTTP the status line may say it
too. The two original servers differ in more than that, and what only one of them does is no rule here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from interlingua.protocols.grps.client_http import HTTP_CALLS
from interlingua.protocols.grps.client_rpc import BRPC_CALLS, GRPC_CALLS
from interlingua.protocols.wire import BrpcAnswer, GrpcAnswer
from interlingua.schemas import Datatype, InferRequest, Operation
from interlingua.schemas.grps import MESSAGES
from interlingua.translator.conformance.check import Draw, Group, InapplicableError, ViolationError
from interlingua.translator.conformance.exchange import WireExchange, body_of, with_body
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake, Streams, Wire, expect, http_reply, http_request

_HTTP = Group("grps-http", asks=True)

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
    """``status`` of a failure: a code, words, and the flag that says so."""
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
    """The message in JSON; None where the body is plain bytes."""
    reply = http_reply(exchange)
    media = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == "application/octet-stream":
        return None
    try:
        document = orjson.loads(bytes(reply.body))
    except orjson.JSONDecodeError as error:
        raise ViolationError(
            f"status {reply.status} with a body that is no JSON: {error}", exchange
        ) from error
    if not isinstance(document, dict):
        raise ViolationError("a body that is no JSON object", exchange)
    return document


def _http_succeeded(exchange: WireExchange) -> bool:
    if exchange.reply is None or http_reply(exchange).status != 200:
        return False
    document = _document(exchange)
    return document is None or document.get("status", {}).get("status") != "FAILURE"


def _check_http_error(exchange: WireExchange, mistake: Mistake) -> None:
    """A message in JSON whose status says FAILURE; the status line says 200 or the same code."""
    reply = http_reply(exchange)
    document = _document(exchange)
    if document is None:
        raise ViolationError("an error that is plain bytes", exchange)
    status = document.get("status", {})
    _check_status(status, exchange)
    expect(
        reply.status in (200, status["code"]),
        f"status {reply.status} beside the code {status['code']}",
        exchange,
    )


def _check_http_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Plain bytes, or a message in JSON: its status says success, and its tensors are whole."""
    expect(http_reply(exchange).status == 200, "an answer with another status than 200", exchange)
    document = _document(exchange)
    if document is None:
        return
    status = document.get("status", {})
    told = {"code": 200, "status": "SUCCESS"}
    expect(told.items() <= status.items(), f"an answer with the status {status}", exchange)
    data = [name for name in _DATA if name in document]
    expect(len(data) <= 1, f"an answer with {' and '.join(data)}", exchange)
    for tensor in document.get("gtensors", {}).get("tensors", ()):
        _check_tensor(tensor, exchange)
        if tensor["dtype"] == "DT_INT64":
            texts = all(isinstance(number, str) for number in tensor.get("flat_int64", ()))
            expect(texts, "64-bit integers are strings in JSON", exchange)


@_HTTP("Members that a message does not have are ignored.")
def unknown_members(server: ServerUnderTest, draw: Draw) -> None:
    sent = http_request(server.encoded(server.request(distinct(server.known, 1))))
    document = _as_json(server)
    right = _tensors(server, sent, document)
    tensors = document["gtensors"]["tensors"]
    place = draw(st.sampled_from((document, tensors[0])))
    place[draw(st.sampled_from(("flat_double", "s_t", "more")))] = draw(st.sampled_from(([1.5], "text", 3)))
    expect(
        _tensors(server, sent, document) == right,
        "with an unknown member the answer is another",
        server.last,
    )


@_HTTP("Another Content-Type than the two that there are is refused.")
def content_types(server: ServerUnderTest, draw: Draw) -> None:
    sent = http_request(server.encoded(server.request(distinct(server.known, 1))))
    media = draw(st.sampled_from(("text/plain", "application/xml", "application/x-www-form-urlencoded")))
    exchange = server.send(replace(sent, headers={"Content-Type": media}))
    expect(not _http_succeeded_tolerant(exchange), f"the Content-Type {media} was taken", exchange)


@_HTTP("Nested lists are a tensor of FLOAT32, and come back as such when asked for.")
def nested_lists(server: ServerUnderTest, draw: Draw) -> None:
    [spec, *more] = server.known.inputs
    if more or spec.datatype is not Datatype.FP32 or not _echoes(server):
        raise InapplicableError("the model does not answer with its one input of FP32")
    rank = len(spec.shape)
    numbers = draw(st.lists(st.integers(-1000, 1000).map(lambda number: number / 4), min_size=1, max_size=4))
    nested: Any = numbers
    for _ in range(rank - 1):
        nested = [nested]
    document = {"model": _as_json(server).get("model", ""), "ndarray": nested}
    sent = http_request(server.encoded(server.request(distinct(server.known, 1))))
    exchange = server.send(replace(sent, query="return-ndarray=true", parts=[orjson.dumps(document)]))
    answer = _document(exchange) or {}
    expect(answer.get("ndarray") == nested, f"{nested} came back as {answer.get('ndarray')}", exchange)


def _http_succeeded_tolerant(exchange: WireExchange) -> bool:
    """As :func:`_http_succeeded`; a reply that is no JSON is a refusal, if its status says so."""
    return http_reply(exchange).status < 400 and _http_succeeded(exchange)


def _echoes(server: ServerUnderTest) -> bool:
    return any(relation.kind == "echo" for relation in server.relations)


def _as_json(server: ServerUnderTest) -> Document:
    sent = server.encoded(server.request(distinct(server.known, 1)))
    try:
        document: Document = orjson.loads(body_of(sent))
    except orjson.JSONDecodeError:
        raise InapplicableError("the request is plain bytes") from None
    if "gtensors" not in document:
        raise InapplicableError("the request has no tensors")
    return document


def _tensors(server: ServerUnderTest, sent: Any, document: Document) -> Any:
    exchange = server.send(with_body(sent, orjson.dumps(document)))
    expect(_http_succeeded(exchange), "a good request was refused", exchange)
    _check_http_answer(server.request(()), exchange)
    answer = _document(exchange)
    return bytes(http_reply(exchange).body) if answer is None else {name: answer.get(name) for name in _DATA}


# --- gRPC and bRPC


def _message(exchange: WireExchange) -> Any:
    """The message that came back. A status of the transport is none."""
    reply = exchange.reply
    if not isinstance(reply, GrpcAnswer | BrpcAnswer) or reply.code:
        raise ViolationError("an answer without a message", exchange)
    try:
        return _MESSAGE.FromString(bytes(reply.message))
    except DecodeError as error:
        raise ViolationError(f"an answer that is no GrpsMessage: {error}", exchange) from error


def _rpc_succeeded(exchange: WireExchange) -> bool:
    reply = exchange.reply
    if not isinstance(reply, GrpcAnswer | BrpcAnswer) or reply.code:
        return False
    return bool(_message(exchange).status.status != 2)


def _check_rpc_error(exchange: WireExchange, mistake: Mistake) -> None:
    """The transport's status says OK, the message's FAILURE. Bytes that are no message are the transport's to
    refuse."""
    reply = exchange.reply
    if mistake is Mistake.MALFORMED and (reply is None or reply.code):  # type: ignore[union-attr]
        return
    status = _message(exchange).status
    flag = "FAILURE" if status.status == 2 else status.status
    _check_status({"code": status.code, "msg": status.msg, "status": flag}, exchange)


def _check_rpc_answer(request: InferRequest, exchange: WireExchange) -> None:
    """A status of 200 and SUCCESS, and tensors that are whole."""
    message = _message(exchange)
    status = message.status
    expect((status.code, status.status) == (200, 1), f"code {status.code}, flag {status.status}", exchange)
    names = {
        value.number: value.name for value in _MESSAGE.DESCRIPTOR.file.enum_types_by_name["DataType"].values
    }
    for tensor in message.gtensors.tensors:
        fields = {
            field.name: list(value) for field, value in tensor.ListFields() if field.name[:5] == "flat_"
        }
        described = {"name": tensor.name, "dtype": names.get(tensor.dtype, ""), "shape": list(tensor.shape)}
        _check_tensor({**described, **fields}, exchange)


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
    "grpc": Wire(
        _rpc_succeeded,
        _check_rpc_error,
        _check_rpc_answer,
        {"message": GRPC_CALLS[Operation.INFER]},
        exempt=_EXEMPT,
        streams=Streams(GRPC_CALLS[Operation.INFER_STREAM]),
    ),
    "brpc": Wire(
        _rpc_succeeded,
        _check_rpc_error,
        _check_rpc_answer,
        {"message": BRPC_CALLS[Operation.INFER]},
        exempt=_EXEMPT,
    ),
}
