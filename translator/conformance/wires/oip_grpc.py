"""The Open Inference Protocol over gRPC: valid responses and refusals, and the rules of this wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.oip.client import GRPC_CALLS
from interlingua.protocols.protobuf_wire import read_fields
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Signature,
    element_count,
)
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import ViolationError, expect, expect_names, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.replies import grpc_reply, grpc_request, parsed
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.streams import STRANGE, alone, needs_streams
from interlingua.translator.conformance.wire import Mistake, Streams, Wire
from interlingua.translator.conformance.wires.oip_common import ANY_IDS, EXTENSIONS, PLAIN_IDS, with_classes
from interlingua.translator.conformance.wires.oip_memory import GRPC_MEMORY

_RULES = Group("oip-grpc", infers=True)
_STREAM_RULES = Group("oip-grpc")

_REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
_RESPONSE: Any = MESSAGES["inference.ModelInferResponse"]
_STREAMED: Any = MESSAGES["inference.ModelStreamInferResponse"]

_INVALID_ARGUMENT, _NOT_FOUND, _UNIMPLEMENTED = 3, 5, 12
_MISTAKES = {
    _INVALID_ARGUMENT: "INVALID_ARGUMENT",
    _NOT_FOUND: "NOT_FOUND",
    9: "FAILED_PRECONDITION",
    11: "OUT_OF_RANGE",
    _UNIMPLEMENTED: "UNIMPLEMENTED",
}
"""Statuses for a caller's mistake."""

_CONTENTS = {
    Datatype.BOOL: "bool_contents",
    **dict.fromkeys((Datatype.INT8, Datatype.INT16, Datatype.INT32), "int_contents"),
    Datatype.INT64: "int64_contents",
    **dict.fromkeys((Datatype.UINT8, Datatype.UINT16, Datatype.UINT32), "uint_contents"),
    Datatype.UINT64: "uint64_contents",
    Datatype.FP32: "fp32_contents",
    Datatype.FP64: "fp64_contents",
    Datatype.BYTES: "bytes_contents",
}
"""The field of ``InferTensorContents`` for elements of a datatype; FP16 and BF16 have none."""


def _succeeded(exchange: WireExchange) -> bool:
    return isinstance(exchange.reply, GrpcAnswer) and exchange.reply.code == 0


def _check_error(exchange: WireExchange, mistake: Mistake) -> None:
    """A status for the caller's mistake, with a text; any status for bytes that are not protobuf, which the
    gRPC library refuses."""
    reply = grpc_reply(exchange)
    if mistake is Mistake.MALFORMED:
        return
    expect(reply.details, f"status {reply.code} without a text", exchange)
    if mistake in (Mistake.UNKNOWN_MODEL, Mistake.UNKNOWN_VERSION):
        expect(reply.code == _NOT_FOUND, f"status {reply.code} for {mistake.value}, not NOT_FOUND", exchange)
    elif mistake is not Mistake.ANY:
        what = f"status {reply.code} ({reply.details[:80]}) for the caller's mistake: none of "
        expect(reply.code in _MISTAKES, what + ", ".join(_MISTAKES.values()), exchange)


def _check_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Each output once, complete: one entry each in raw contents, or the typed field of its datatype."""
    reply = grpc_reply(exchange)
    expect(reply.code == 0, f"status {reply.code} of an answer", exchange)
    answer = parsed(_RESPONSE, bytes(reply.message), exchange)
    expect_names("output", [output.name for output in answer.outputs], exchange)
    raws, count = list(answer.raw_output_contents), len(answer.outputs)
    expect(len(raws) in (0, count), f"{len(raws)} raw contents for {count} outputs", exchange)
    for place, output in enumerate(answer.outputs):
        datatype = DATATYPES.get(output.datatype)
        if datatype is None:
            what = f"output '{output.name}' has the unknown datatype {output.datatype!a}"
            raise ViolationError(what, exchange)
        valid = all(size >= 0 for size in output.shape)
        expect(valid, f"output '{output.name}' has the shape {list(output.shape)}", exchange)
        count = element_count(output.shape)
        if not raws:
            field = _CONTENTS.get(datatype)
            have = len(getattr(output.contents, field)) if field else -1
            expect(have == count, f"output '{output.name}' has {have} elements for {count}", exchange)
        elif datatype is not Datatype.BYTES:
            have = len(raws[place])
            what = f"output '{output.name}': {have} bytes for {count} {datatype.value}"
            expect(have == count * datatype.itemsize, what, exchange)


def _encode_typed(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, Any]:
    sent, form = GRPC_CALLS[Operation.INFER].encode(request, signature)
    message = _REQUEST.FromString(bytes(sent.message))
    del message.raw_input_contents[:]
    for entry, tensor in zip(message.inputs, request.inputs, strict=True):
        field = _CONTENTS.get(tensor.datatype)
        if field is None:
            what = f"input '{tensor.name}': {tensor.datatype.value} has no typed contents"
            raise InferenceError(ErrorCode.UNREPRESENTABLE, what)
        getattr(entry.contents, field).extend(tensor.numpy().ravel().tolist())
    return replace(sent, message=message.SerializeToString()), form


def _list_models(server: ServerUnderTest) -> tuple[str, ...]:
    """The ready models in the repository index."""
    exchange = server.send(GrpcRequest("/inference.GRPCInferenceService/RepositoryIndex", b""))
    if not _succeeded(exchange):
        return ()
    index: Any = MESSAGES["inference.RepositoryIndexResponse"]
    answer = index.FromString(bytes(grpc_reply(exchange).message))
    return tuple(dict.fromkeys(entry.name for entry in answer.models if entry.state == "READY"))


# --- streams


def _wrapped(piece: GrpcAnswer) -> bool:
    """Whether an answer in a stream is wrapped in a message with a field for errors."""
    return not piece.code and read_fields(piece.message).keys() <= {1, 2}


def _unwrap(piece: GrpcAnswer) -> GrpcAnswer:
    """The answer without its wrapping. Streams report the text of an error, not its status."""
    if not _wrapped(piece):
        return piece
    streamed = _STREAMED.FromString(bytes(piece.message))
    if streamed.error_message:
        return GrpcAnswer(code=_INVALID_ARGUMENT, details=streamed.error_message)
    return GrpcAnswer(streamed.infer_response.SerializeToString())


def _encode_flagged(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, Any]:
    """A request for the flag of the last answer, even on an empty one."""
    sent, form = GRPC_CALLS[Operation.INFER_STREAM].encode(request, signature)
    message = _REQUEST.FromString(bytes(sent.message))
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return replace(sent, message=message.SerializeToString()), form


_STREAM_CALL = GRPC_CALLS[Operation.INFER_STREAM]
_STREAMS = Streams(_STREAM_CALL, _unwrap, many=True, known=_wrapped)
_FLAGGED = replace(_STREAMS, call=UpstreamCall(_encode_flagged, _STREAM_CALL.decode))


# --- rules of this wire


@_RULES("Unknown fields are ignored.")
def unknown_fields(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample()
    right = server.answer(request)
    sent = grpc_request(server.encoded(request))
    number = draw(st.integers(200, 1000))
    text = draw(st.binary(max_size=20))
    head = (number << 3) | 2
    more = bytes([head & 127 | 128, head >> 7, len(text)]) + text
    exchange = server.send(replace(sent, message=bytes(sent.message) + more))
    expect(_succeeded(exchange), f"a request with the unknown field {number} was refused", exchange)
    have = _RESPONSE.FromString(bytes(grpc_reply(exchange).message))
    expect(len(have.outputs) == len(right.outputs), "with an unknown field the answer differs", exchange)


@_RULES("A request with both raw and typed contents is refused.", once=True)
def raw_and_typed(server: ServerUnderTest, draw: Draw) -> None:
    request = server.sample()
    sent = grpc_request(server.encoded(request, "typed"))
    raw = grpc_request(server.encoded(request))
    both = _REQUEST.FromString(bytes(sent.message))
    both.raw_input_contents.extend(_REQUEST.FromString(bytes(raw.message)).raw_input_contents)
    exchange = server.send(replace(sent, message=both.SerializeToString()))
    server.refuses(exchange, Mistake.INVALID, "a request with both raw and typed contents")


@_RULES("An unknown method is UNIMPLEMENTED.", once=True)
def unknown_method(server: ServerUnderTest, draw: Draw) -> None:
    exchange = server.send(GrpcRequest("/inference.GRPCInferenceService/NoSuchThing", b""))
    code = grpc_reply(exchange).code
    expect(code == _UNIMPLEMENTED, f"status {code} of an unknown method, not UNIMPLEMENTED", exchange)


@_STREAM_RULES("An answer in a stream is wrapped in a message with a field for errors.", once=True)
def streamed_form(server: ServerUnderTest, draw: Draw) -> None:
    needs_streams(server)
    streamed = alone(server, server.sample())
    # unwrapped, clients read the name of the model as an error
    expect(not streamed.strange, "an answer in a stream is not a ModelStreamInferResponse", streamed.ending)


@_STREAM_RULES("Only the last answer to a request of a stream has the flag of the last.", once=True)
def last_answer(server: ServerUnderTest, draw: Draw) -> None:
    needs_streams(server)
    streamed = alone(server, server.sample(), _FLAGGED)
    skip_if(streamed.strange, STRANGE)
    flags = [exchange.result.final for exchange in streamed.answers]
    right = [False] * (len(flags) - 1) + [True]
    expect(flags == right, f"the flags of the last answer are {flags}", streamed.ending)


WIRE = Wire(
    _succeeded,
    _check_error,
    _check_answer,
    {
        "raw": GRPC_CALLS[Operation.INFER],
        "typed": UpstreamCall(_encode_typed, GRPC_CALLS[Operation.INFER].decode),
    },
    (*_RULES.checks, *_STREAM_RULES.checks),
    ids=PLAIN_IDS,
    any_ids=ANY_IDS,
    extensions=EXTENSIONS,
    list_models=_list_models,
    classes={"raw": with_classes(GRPC_CALLS[Operation.INFER])},
    memory=GRPC_MEMORY,
    streams=_STREAMS,
)
