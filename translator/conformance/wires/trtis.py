"""TensorRT Inference Server version 1: valid responses and refusals, and the rules of both wires.

HTTP carries the messages of gRPC in headers; the body of an answer ends with a copy of its header."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from google.protobuf import text_format
from hypothesis import strategies as st

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.trtis.client import GRPC_CALLS, HTTP_CALLS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, InferResponse, Operation, Signature
from interlingua.schemas.trtis import MESSAGES
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import ViolationError, expect, expect_names, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.replies import (
    grpc_reply,
    grpc_request,
    http_reply,
    http_request,
    parsed,
)
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wire import Mistake, Streams, Wire
from interlingua.translator.conformance.wires.trtis_classes import GRPC_CLASSES, HTTP_CLASSES
from interlingua.translator.conformance.wires.trtis_memory import GRPC_MEMORY, HTTP_MEMORY

_HTTP = Group("trtis-http", infers=True)
_GRPC = Group("trtis-grpc", infers=True)

_PACKAGE = "nvidia.inferenceserver"
_STATUS: Any = MESSAGES[f"{_PACKAGE}.RequestStatus"]
_HEADER: Any = MESSAGES[f"{_PACKAGE}.InferResponseHeader"]
_CALL: Any = MESSAGES[f"{_PACKAGE}.InferRequest"]
_ANSWER: Any = MESSAGES[f"{_PACKAGE}.InferResponse"]

_IDS = st.integers(1, 2**64 - 1).map(str)

_EXEMPT = {"refusals/wrong-datatype": "requests name no datatypes"}

_SUCCESS = 1
_INVALID_ARG, _UNAVAILABLE = 5, 6
_CODES = {
    Mistake.UNKNOWN_MODEL: _UNAVAILABLE,
    Mistake.UNKNOWN_VERSION: _UNAVAILABLE,
    Mistake.INVALID: _INVALID_ARG,
}


def _text(message_type: Any, text: str, exchange: WireExchange) -> Any:
    try:
        return text_format.Parse(text, message_type())
    except text_format.ParseError as error:
        name = message_type.DESCRIPTOR.name
        raise ViolationError(f"a header is not a valid {name} in text format: {error}", exchange) from error


def _check_refusal(status: Any, exchange: WireExchange, mistake: Mistake) -> None:
    expect(status.msg, f"code {status.code} without a text", exchange)
    expect(status.server_id, "a status without the server's id", exchange)
    right = _CODES.get(mistake)
    expect(right in (None, status.code), f"code {status.code} for {mistake.value}, not {right}", exchange)


def _check_header(request: InferRequest, header: Any, exchange: WireExchange) -> None:
    """``header`` describes an answer to ``request``: each output once, with its size."""
    expect(header.model_name == request.model, f"the answer names the model {header.model_name!a}", exchange)
    expect(header.batch_size >= 1, "an answer without a batch size crashes the original client", exchange)
    expect_names("output", [output.name for output in header.output], exchange)
    for output in header.output:
        one_form = output.HasField("raw") != bool(output.batch_classes)
        expect(one_form, f"'{output.name}' is raw or classes", exchange)
        if output.HasField("raw") and math.prod(output.raw.dims):
            expect(output.raw.batch_byte_size, f"output '{output.name}' without a size", exchange)
    if exchange.result is not None:
        sizes = {tensor.name: tensor.nbytes for tensor in exchange.result.outputs}
        for output in header.output:
            have, right = output.raw.batch_byte_size, sizes.get(output.name, 0)
            expect(have == right, f"output '{output.name}' has {right} bytes, its header {have}", exchange)


# --- HTTP


def _http_status(exchange: WireExchange) -> Any:
    text = http_reply(exchange).headers.get("nv-status")
    return None if text is None else _text(_STATUS, text, exchange)


def _http_succeeded(exchange: WireExchange) -> bool:
    if exchange.reply is None or http_reply(exchange).status != 200:
        return False
    status = _http_status(exchange)
    return status is None or status.code == _SUCCESS


def _check_http_error(exchange: WireExchange, mistake: Mistake) -> None:
    """Status 400 with the reason as NV-Status, and no body."""
    reply = http_reply(exchange)
    expect(reply.status == 400, f"status {reply.status} of an error, not 400", exchange)
    status = _http_status(exchange)
    if status is None and mistake is Mistake.MALFORMED:
        return
    expect(status is not None, "an error without NV-Status", exchange)
    _check_refusal(status, exchange, mistake)
    expect(not reply.body, "an error with a body", exchange)


def _check_http_answer(request: InferRequest, exchange: WireExchange) -> None:
    """NV-Status has success and the number of the request. NV-InferResponse describes the body, which ends in
    the same message with the classes."""
    reply = http_reply(exchange)
    status = _http_status(exchange)
    if status is None:
        raise ViolationError("an answer without NV-Status", exchange)
    expect(status.code == _SUCCESS, f"an answer with the code {status.code}", exchange)
    ids = status.server_id and status.request_id
    expect(ids, "NV-Status without the ids of server and request", exchange)
    text = reply.headers.get("nv-inferresponse")
    if text is None:
        raise ViolationError("an answer without NV-InferResponse", exchange)
    header, body = _text(_HEADER, text, exchange), bytes(reply.body)
    size = sum(output.raw.batch_byte_size for output in header.output)
    expect(size <= len(body), f"{len(body)} bytes, the header lists at least {size}", exchange)
    repeated = parsed(_HEADER, body[size:], exchange, "the end of the body")
    _check_header(request, repeated, exchange)
    for output in repeated.output:
        output.ClearField("batch_classes")
    expect(repeated == header, "the message at the end of the body is not that of the header", exchange)


@_HTTP("Each request gets a larger number than the previous one.")
def request_numbers(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample()
    numbers = []
    for _ in range(3):
        if draw(st.booleans()):
            server.answer(request)
        else:
            server.infer(replace(request, model="no_such_model"))
        numbers.append(_http_status(server.last).request_id if server.last else 0)
    expect(numbers == sorted(set(numbers)), f"the numbers {numbers} do not grow", server.last)


@_HTTP("A request for no outputs gets none.", once=True)
@_GRPC("A request for no outputs gets none.", once=True)
def no_outputs(server: ServerUnderTest, draw: Draw) -> None:
    response = server.answer(replace(server.sample(), outputs=()))
    expect(not response.outputs, "outputs in an answer to a request for none", server.last)


@_HTTP("A request with a missing or invalid header is refused with 400.")
def bad_header(server: ServerUnderTest, draw: Draw) -> None:
    sent = http_request(server.encoded(server.sample()))
    others = {name: text for name, text in sent.headers.items() if name.lower() != "nv-inferrequest"}
    text = draw(st.sampled_from(("", "batch_size: x", "no_such_field: 1", "input {", 'input { name: "a')))
    exchange = server.send(replace(sent, headers=others | ({"NV-InferRequest": text} if text else {})))
    server.refuses(exchange, Mistake.MALFORMED, f"the header {text!a}")


@_HTTP("Without format=binary, the message at the end of the body is text.", once=True)
def text_at_the_end(server: ServerUnderTest, draw: Draw) -> None:
    sent = http_request(server.encoded(server.sample()))
    exchange = server.send(replace(sent, query=""))
    reply = http_reply(exchange)
    header = _text(_HEADER, reply.headers.get("nv-inferresponse", "?"), exchange)
    size = sum(output.raw.batch_byte_size for output in header.output)
    tail = _text(_HEADER, bytes(reply.body)[size:].decode(errors="replace"), exchange)
    expect(tail == header, "the text at the end is not that of the header", exchange)


@_HTTP("Without free dimensions, a request may omit the dimensions.", once=True)
def dimensions_omitted(server: ServerUnderTest, draw: Draw) -> None:
    batched = bool(server.known.max_batch_size)
    skip_if(
        any(size < 0 for spec in server.known.inputs for size in spec.shape[batched:]), "a dimension is free"
    )
    request = server.sample()
    right = server.answer(request)
    sent = http_request(server.encoded(request))
    header = text_format.Parse(sent.headers["NV-InferRequest"], MESSAGES[f"{_PACKAGE}.InferRequestHeader"]())
    for entry in header.input:  # type: ignore[attr-defined]
        del entry.dims[:]
    text = text_format.MessageToString(header, as_one_line=True)
    exchange = server.send(replace(sent, headers={**sent.headers, "NV-InferRequest": text}))
    expect(_http_succeeded(exchange), "a request without dimensions was refused", exchange)
    have = bytes(http_reply(exchange).body)
    for tensor in right.outputs:
        expect(bytes(tensor.view) in have, f"without dimensions, '{tensor.name}' differs", exchange)


@_HTTP("An unknown path gets 400, another method than the endpoint's 405.", once=True)
def paths_and_methods(server: ServerUnderTest, draw: Draw) -> None:
    infer = f"/api/infer/{server.model}"
    for method, path, right in (
        ("GET", "/api/health", 400),
        ("GET", "/api/no_such_thing", 400),
        ("POST", f"{infer}/x", 400),
        ("GET", infer, 405),
    ):
        exchange = server.send(HttpCall(method, path))
        status = http_reply(exchange).status
        expect(status == right, f"status {status} of {method} {path}, not {right}", exchange)


# --- gRPC


def _grpc_answer(exchange: WireExchange) -> Any:
    reply = grpc_reply(exchange)
    expect(not reply.code, f"gRPC status {reply.code}: errors belong in the message", exchange)
    return parsed(_ANSWER, bytes(reply.message), exchange)


def _grpc_succeeded(exchange: WireExchange) -> bool:
    if exchange.reply is None or grpc_reply(exchange).code:
        return False
    return bool(_grpc_answer(exchange).request_status.code == _SUCCESS)


def _check_grpc_error(exchange: WireExchange, mistake: Mistake) -> None:
    """Status OK, with the reason in request_status. The gRPC library refuses bytes that are not protobuf."""
    if mistake is Mistake.MALFORMED and grpc_reply(exchange).code:
        return
    answer = _grpc_answer(exchange)
    _check_refusal(answer.request_status, exchange, mistake)
    expect(not answer.raw_output, "an error with raw outputs", exchange)


def _check_grpc_answer(request: InferRequest, exchange: WireExchange) -> None:
    """One raw output per output, of the size in the header."""
    answer = _grpc_answer(exchange)
    header = answer.meta_data
    expect(answer.request_status.request_id, "a status without the number of the request", exchange)
    _check_header(request, header, exchange)
    sizes = [output.raw.batch_byte_size for output in header.output]
    have = list(map(len, answer.raw_output))
    expect(have == sizes, f"raw outputs of {have} bytes, the header lists {sizes}", exchange)


def _encode_streamed(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, Any]:
    sent, form = GRPC_CALLS[Operation.INFER].encode(request, signature)
    return replace(sent, method=f"/{_PACKAGE}.GRPCService/StreamInfer"), form


def _decode_streamed(form: Any, answer: GrpcAnswer) -> tuple[InferResponse]:
    """An answer has its unary form; a refusal is matched by its id."""
    try:
        return (GRPC_CALLS[Operation.INFER].decode(form, answer),)
    except InferenceError as error:
        if answer.code or error.code is ErrorCode.BAD_UPSTREAM:
            raise
        header = _ANSWER.FromString(bytes(answer.message)).meta_data
        return (InferResponse(header.model_name, (), id=str(header.id or ""), error=error),)


@_GRPC("The id of a request comes back with its refusal.")
def id_of_a_refusal(server: ServerUnderTest, draw: Draw) -> None:
    number = draw(st.integers(1, 2**64 - 1))
    request = replace(server.sample(), id=str(number), model="no_such_model")
    exchange = server.infer(request)
    server.refuses(exchange, Mistake.UNKNOWN_MODEL)
    have = _grpc_answer(exchange).meta_data.id
    expect(have == number, f"the id {number} came back as {have}", exchange)


@_GRPC("An empty batch is refused.", once=True)
def empty_batch(server: ServerUnderTest, draw: Draw) -> None:
    sent = grpc_request(server.encoded(server.sample()))
    call = _CALL.FromString(server.form.body(sent))
    call.meta_data.batch_size = 0
    exchange = server.send(replace(sent, message=call.SerializeToString()))
    server.refuses(exchange, Mistake.INVALID, "an empty batch")


@_GRPC("An unknown method is UNIMPLEMENTED.", once=True)
def no_such_method(server: ServerUnderTest, draw: Draw) -> None:
    exchange = server.send(GrpcRequest(f"/{_PACKAGE}.GRPCService/NoSuchThing", b""))
    code = grpc_reply(exchange).code
    expect(code == 12, f"status {code} of an unknown method, not UNIMPLEMENTED", exchange)


WIRES = {
    "http": Wire(
        _http_succeeded,
        _check_http_error,
        _check_http_answer,
        {"header and body": HTTP_CALLS[Operation.INFER]},
        tuple(_HTTP.checks),
        exempt=_EXEMPT,
        ids=_IDS,
        any_ids=_IDS,
        classes={"header and body": HTTP_CLASSES},
        memory=HTTP_MEMORY,
    ),
    "grpc": Wire(
        _grpc_succeeded,
        _check_grpc_error,
        _check_grpc_answer,
        {"message": GRPC_CALLS[Operation.INFER]},
        tuple(_GRPC.checks),
        exempt=_EXEMPT,
        ids=_IDS,
        any_ids=_IDS,
        classes={"message": GRPC_CLASSES},
        memory=GRPC_MEMORY,
        streams=Streams(UpstreamCall(_encode_streamed, _decode_streamed), many=True),
    ),
}
