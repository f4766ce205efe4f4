"""TensorFlow Serving over REST and gRPC: valid answers and refusals, and the rules of both wires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.json_document import parse_json, write_json
from interlingua.protocols.tfserving.client import GRPC_CALLS, HTTP_CALLS, KSERVE_CALLS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.schemas import Datatype, InferenceError, InferRequest, Operation, Signature, element_count
from interlingua.schemas.tfserving import MESSAGES
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.comparison import expect_same
from interlingua.translator.conformance.errors import ViolationError, expect, expect_names, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.replies import (
    grpc_reply,
    grpc_request,
    http_reply,
    http_request,
    media_type,
    parsed,
)
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wire import Mistake, Wire

_HTTP = Group("tfserving-http", infers=True)
_GRPC = Group("tfserving-grpc", infers=True)

_REQUEST: Any = MESSAGES["tensorflow.serving.PredictRequest"]
_RESPONSE: Any = MESSAGES["tensorflow.serving.PredictResponse"]

_INVALID_ARGUMENT, _NOT_FOUND, _FAILED_PRECONDITION, _UNIMPLEMENTED = 3, 5, 9, 12
_MISTAKES = frozenset({_INVALID_ARGUMENT, _NOT_FOUND, _FAILED_PRECONDITION, _UNIMPLEMENTED})
_UNKNOWN = frozenset({Mistake.UNKNOWN_MODEL, Mistake.UNKNOWN_VERSION})

_VALUES: Mapping[Datatype, str] = {
    Datatype.FP32: "float_val",
    Datatype.FP64: "double_val",
    **dict.fromkeys(
        (Datatype.INT32, Datatype.INT16, Datatype.INT8, Datatype.UINT16, Datatype.UINT8), "int_val"
    ),
    Datatype.INT64: "int64_val",
    Datatype.UINT32: "uint32_val",
    Datatype.UINT64: "uint64_val",
    Datatype.BOOL: "bool_val",
    Datatype.BYTES: "string_val",
}
"""The field of typed values of a datatype; those of half floats are their bits."""


# --- REST


def _succeeded_http(exchange: WireExchange) -> bool:
    return isinstance(exchange.reply, HttpReply) and exchange.reply.status == 200


def _document(exchange: WireExchange) -> dict[str, Any]:
    """The object in a body, where the numbers may be NaN and infinity."""
    try:
        document = parse_json(http_reply(exchange).body)
    except InferenceError as error:
        raise ViolationError(f"the body is not JSON: {error.message}", exchange) from error
    if type(document) is not dict:
        raise ViolationError("the body is not a JSON object", exchange)
    return document


def _check_http_error(exchange: WireExchange, mistake: Mistake) -> None:
    """A status of an error with its text under ``error``."""
    reply = http_reply(exchange)
    text = _document(exchange).get("error")
    expect(isinstance(text, str) and text != "", f"status {reply.status} without a text", exchange)
    if mistake in _UNKNOWN:
        expect(reply.status == 404, f"status {reply.status} for {mistake.value}, not 404", exchange)
    elif mistake is not Mistake.ANY:
        valid = 400 <= reply.status < 500 or reply.status == 501
        expect(valid, f"status {reply.status} for the caller's mistake", exchange)


def _check_http_answer(request: InferRequest, exchange: WireExchange) -> None:
    """``predictions`` or ``outputs``, and no other tensors."""
    reply = http_reply(exchange)
    expect(reply.status == 200, f"status {reply.status} of an answer", exchange)
    media = media_type(reply)
    expect(media == "application/json", f"an answer with the Content-Type {media!a}", exchange)
    keys = _document(exchange).keys() & {"predictions", "outputs"}
    expect(len(keys) == 1, f"an answer with {sorted(keys) or 'no tensors'}", exchange)


def _body(server: ServerUnderTest) -> tuple[dict[str, Any], HttpCall]:
    """A valid request by column, and its message."""
    sent = http_request(server.encoded(server.sample()))
    document: dict[str, Any] = parse_json(b"".join(sent.parts))
    return document, sent


def _send(server: ServerUnderTest, sent: HttpCall, document: Any) -> WireExchange:
    body = document if isinstance(document, bytes) else write_json(document)
    return server.send(server.form.with_body(sent, body))


@_HTTP("An answer has the form of its request: by row or by column.")
def form_of_the_request(server: ServerUnderTest, draw: Draw) -> None:
    for form, key in (("column", "outputs"), ("row", "predictions")):
        exchange = server.infer(server.sample(draw(st.integers(0, 50))), form)
        server.answered(exchange)
        expect(key in _document(exchange), f"an answer by {form} without '{key}'", exchange)


@_HTTP("A request by row and by column has the same answer.")
def rows_and_columns(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample(draw(st.integers(0, 50)))
    by_column = server.answer(request, "column")
    expect_same(server, by_column, server.answer(request, "row"), "by row the answer differs")


@_HTTP("A request with neither inputs nor instances, or both, is refused.")
def inputs_or_instances(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _body(server)
    broken = draw(st.sampled_from(({}, {**document, "instances": [1]}, {"instances": []}, {"instances": 1})))
    server.refuses(_send(server, sent, broken), Mistake.MALFORMED, "a request without its inputs once")


@_HTTP("A body that is not JSON is refused.")
def not_json(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _body(server)
    text = write_json(document)
    broken = draw(st.sampled_from((b"", b"[]", b"null", text[:-1], text + b"}", text.replace(b":", b"=", 1))))
    server.refuses(_send(server, sent, broken), Mistake.MALFORMED, "a body that is not one JSON object")


@_HTTP("An unknown signature is refused.")
def unknown_signature(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _body(server)
    name = draw(st.text("abcdefgh_", min_size=1, max_size=8).map("no_such_{}".format))
    exchange = _send(server, sent, {**document, "signature_name": name})
    server.refuses(exchange, Mistake.INVALID, f"the signature '{name}'")


@_HTTP("A model that answers has a version that is available.", once=True)
def available(server: ServerUnderTest, draw: Draw) -> None:
    server.answer(server.sample())
    exchange = server.send(HttpCall("GET", f"/v1/models/{quote(server.model, safe='')}"))
    found = _document(exchange).get("model_version_status")
    expect(isinstance(found, list) and found, "a status without versions", exchange)
    states = [each.get("state") for each in found or () if isinstance(each, dict)]
    expect("AVAILABLE" in states, f"the versions are in states {states}", exchange)


# --- gRPC


def _succeeded_grpc(exchange: WireExchange) -> bool:
    return isinstance(exchange.reply, GrpcAnswer) and exchange.reply.code == 0


def _check_grpc_error(exchange: WireExchange, mistake: Mistake) -> None:
    """A status for the caller's mistake, with a text; any status for bytes that are not protobuf."""
    reply = grpc_reply(exchange)
    if mistake is Mistake.MALFORMED:
        return
    expect(reply.details, f"status {reply.code} without a text", exchange)
    if mistake in _UNKNOWN:
        expect(reply.code == _NOT_FOUND, f"status {reply.code} for {mistake.value}, not NOT_FOUND", exchange)
    elif mistake is not Mistake.ANY:
        expect(reply.code in _MISTAKES, f"status {reply.code} for the caller's mistake", exchange)


def _check_grpc_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Tensors of a known datatype with a shape, and either bytes or typed values."""
    reply = grpc_reply(exchange)
    expect(reply.code == 0, f"status {reply.code} of an answer", exchange)
    answer = parsed(_RESPONSE, bytes(reply.message), exchange)
    expect_names("output", list(answer.outputs), exchange)
    for name, tensor in answer.outputs.items():
        sides = [dim.size for dim in tensor.tensor_shape.dim]
        valid = not tensor.tensor_shape.unknown_rank and all(side >= 0 for side in sides)
        expect(valid, f"output '{name}' has the shape {sides}", exchange)
        filled = [field.name for field, _ in tensor.ListFields() if field.name.endswith("_val")]
        expect(len(filled) <= 1, f"output '{name}' has values in {filled}", exchange)
        if filled:
            have, count = len(getattr(tensor, filled[0])), element_count(sides)
            expect(have <= count, f"output '{name}' has {have} values for {count} elements", exchange)


def _message(server: ServerUnderTest, number: int = 1) -> tuple[Any, GrpcRequest]:
    sent = grpc_request(server.encoded(server.sample(number)))
    return _REQUEST.FromString(bytes(sent.whole)), sent


def _encode_typed(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, Any]:
    """A request with typed values in place of bytes."""
    sent, form = GRPC_CALLS[Operation.INFER].encode(request, signature)
    message = _REQUEST.FromString(bytes(sent.whole))
    for tensor in request.inputs:
        entry = message.inputs[tensor.name]
        entry.ClearField("tensor_content")
        entry.ClearField("string_val")
        if tensor.datatype in _VALUES:
            getattr(entry, _VALUES[tensor.datatype]).extend(tensor.numpy().ravel().tolist())
        else:
            entry.half_val.extend(tensor.numpy().view("<u2").ravel().tolist())
    return replace(sent, message=message.SerializeToString(), parts=()), form


def _replaced(sent: GrpcRequest, message: Any) -> GrpcRequest:
    return replace(sent, message=message.SerializeToString(), parts=())


@_GRPC("The last of the typed values repeats until the shape is full.")
def last_value_repeats(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample(draw(st.integers(0, 50)))
    known = [tensor for tensor in request.inputs if tensor.datatype in _VALUES and tensor.count > 1]
    skip_if(not known, "no input has several elements")
    sent, _ = _encode_typed(request, server.known)
    short, whole = (_REQUEST.FromString(bytes(sent.message)) for _ in range(2))
    for tensor in known:
        field = _VALUES[tensor.datatype]
        kept = draw(st.integers(1, tensor.count - 1))
        values = list(getattr(short.inputs[tensor.name], field))[:kept]
        getattr(short.inputs[tensor.name], field)[:] = values
        getattr(whole.inputs[tensor.name], field)[:] = values + values[-1:] * (tensor.count - kept)
    call = GRPC_CALLS[Operation.INFER]
    wanted, got = (
        call.decode(server.model, grpc_reply(server.send(_replaced(sent, message))))
        for message in (whole, short)
    )
    expect_same(server, wanted, got, "with repeated values the answer differs")


@_GRPC("An unknown signature is refused.")
def no_such_signature(server: ServerUnderTest, draw: Draw) -> None:
    message, sent = _message(server)
    name = draw(st.text("abcdefgh_", min_size=1, max_size=8).map("no_such_{}".format))
    message.model_spec.signature_name = name
    server.refuses(server.send(_replaced(sent, message)), Mistake.INVALID, f"the signature '{name}'")


def _wrong_datatype(message: Any) -> None:
    next(iter(message.inputs.values())).dtype = 20  # DT_RESOURCE


def _no_model(message: Any) -> None:
    message.ClearField("model_spec")


def _unknown_output(message: Any) -> None:
    message.output_filter.append("no_such_output")


@_GRPC("A request without a model, of another datatype, or for an unknown output is refused.")
def broken_request(server: ServerUnderTest, draw: Draw) -> None:
    message, sent = _message(server)
    broken: Callable[[Any], None] = draw(st.sampled_from((_wrong_datatype, _no_model, _unknown_output)))
    broken(message)
    server.refuses(server.send(_replaced(sent, message)), Mistake.INVALID, broken.__name__[1:])


_PREDICT = GRPC_CALLS[Operation.INFER]

WIRES = {
    "http": Wire(
        _succeeded_http,
        _check_http_error,
        _check_http_answer,
        {"column": HTTP_CALLS[Operation.INFER], "row": KSERVE_CALLS[Operation.INFER]},
        tuple(_HTTP.checks),
        exempt={"refusals/wrong-datatype": "numbers in JSON have no datatype"},
    ),
    "grpc": Wire(
        _succeeded_grpc,
        _check_grpc_error,
        _check_grpc_answer,
        {"bytes": _PREDICT, "typed": UpstreamCall(_encode_typed, _PREDICT.decode)},
        tuple(_GRPC.checks),
    ),
}
