"""The Open Inference Protocol over gRPC, as it must stand on the wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError
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
from interlingua.translator.conformance.check import Draw, Group, InapplicableError, ViolationError
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.streams import STRANGE, alone, known_in_streams
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake, Streams, Wire, expect, grpc_reply, grpc_request
from interlingua.translator.conformance.wires.oip_common import ANY_IDS, EXTENSIONS, PLAIN_IDS, with_classes
from interlingua.translator.conformance.wires.oip_memory import GRPC_MEMORY

_RULES = Group("oip-grpc", asks=True)
_STREAM_RULES = Group("oip-grpc")

_REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
_RESPONSE: Any = MESSAGES["inference.ModelInferResponse"]
_STREAMED: Any = MESSAGES["inference.ModelStreamInferResponse"]

_INVALID_ARGUMENT, _NOT_FOUND, _UNIMPLEMENTED = 3, 5, 12
_CALLERS = {
    _INVALID_ARGUMENT: "INVALID_ARGUMENT",
    _NOT_FOUND: "NOT_FOUND",
    9: "FAILED_PRECONDITION",
    11: "OUT_OF_RANGE",
    _UNIMPLEMENTED: "UNIMPLEMENTED",
}
"""Statuses that say that the caller made a mistake."""

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
"""The field of ``InferTensorContents`` for the elements of a datatype; two have none."""


def _succeeded(exchange: WireExchange) -> bool:
    return isinstance(exchange.reply, GrpcAnswer) and exchange.reply.code == 0


def _check_error(exchange: WireExchange, mistake: Mistake) -> None:
    """A status that says whose mistake it was, with a text. For bytes that are no protobuf it is gRPC itself
    that answers, and any status will do."""
    reply = grpc_reply(exchange)
    if mistake is Mistake.MALFORMED:
        return
    expect(reply.details, f"status {reply.code} without a text", exchange)
    if mistake in (Mistake.UNKNOWN_MODEL, Mistake.UNKNOWN_VERSION):
        expect(reply.code == _NOT_FOUND, f"status {reply.code} for {mistake.value}, not NOT_FOUND", exchange)
    elif mistake is not Mistake.ANY:
        expect(
            reply.code in _CALLERS,
            f"status {reply.code} ({reply.details[:80]}) for the caller's mistake: none of "
            f"{', '.join(_CALLERS.values())}",
            exchange,
        )


def _check_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Each output once, with all its elements: in raw contents, one entry for each output, or in the typed
    field of its datatype."""
    reply = grpc_reply(exchange)
    expect(reply.code == 0, f"status {reply.code} of an answer", exchange)
    try:
        answer = _RESPONSE.FromString(bytes(reply.message))
    except DecodeError as error:
        raise ViolationError(f"an answer that is no ModelInferResponse: {error}", exchange) from error
    names = [output.name for output in answer.outputs]
    expect(all(names), "an output has no name", exchange)
    expect(len(set(names)) == len(names), f"two of the outputs {names} have one name", exchange)
    raws = list(answer.raw_output_contents)
    expect(len(raws) in (0, len(names)), f"{len(raws)} raw contents for {len(names)} outputs", exchange)
    for place, output in enumerate(answer.outputs):
        datatype = DATATYPES.get(output.datatype)
        if datatype is None:
            raise ViolationError(
                f"output '{output.name}' has the datatype {output.datatype!a}, which the protocol lacks",
                exchange,
            )
        expect(
            all(size >= 0 for size in output.shape),
            f"output '{output.name}' has the shape {list(output.shape)}",
            exchange,
        )
        count = element_count(output.shape)
        if not raws:
            field = _CONTENTS.get(datatype)
            have = len(getattr(output.contents, field)) if field else -1
            expect(have == count, f"output '{output.name}' has {have} elements for {count}", exchange)
        elif datatype is not Datatype.BYTES:
            right = count * datatype.itemsize
            expect(
                len(raws[place]) == right,
                f"output '{output.name}': {len(raws[place])} bytes for {count} {datatype.value}",
                exchange,
            )


def _encode_typed(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, Any]:
    """The request with its elements in typed contents."""
    sent, form = GRPC_CALLS[Operation.INFER].encode(request, signature)
    message = _REQUEST.FromString(bytes(sent.message))
    del message.raw_input_contents[:]
    for entry, tensor in zip(message.inputs, request.inputs, strict=True):
        field = _CONTENTS.get(tensor.datatype)
        if field is None:
            raise InferenceError(
                ErrorCode.UNREPRESENTABLE,
                f"input '{tensor.name}': {tensor.datatype.value} has no typed contents",
            )
        getattr(entry.contents, field).extend(tensor.numpy().ravel().tolist())
    return replace(sent, message=message.SerializeToString()), form


def _list_models(server: ServerUnderTest) -> tuple[str, ...]:
    """The models that are ready, by the repository extension."""
    exchange = server.send(GrpcRequest("/inference.GRPCInferenceService/RepositoryIndex", b""))
    if not _succeeded(exchange):
        return ()
    answer: Any = MESSAGES["inference.RepositoryIndexResponse"].FromString(
        bytes(grpc_reply(exchange).message)
    )
    ready = [entry.name for entry in answer.models if entry.state == "READY"]
    return tuple(dict.fromkeys(ready))


# --- streams


def _wrapped(piece: GrpcAnswer) -> bool:
    """Whether an answer in a stream stands in a message of its own, with an error beside it."""
    return not piece.code and read_fields(piece.message).keys() <= {1, 2}


def _unwrap(piece: GrpcAnswer) -> GrpcAnswer:
    """The answer alone. Of an error a stream tells the words and no status."""
    if not _wrapped(piece):
        return piece
    told = _STREAMED.FromString(bytes(piece.message))
    if told.error_message:
        return GrpcAnswer(code=_INVALID_ARGUMENT, details=told.error_message)
    return GrpcAnswer(told.infer_response.SerializeToString())


def _encode_flagged(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, Any]:
    """A request that asks for the flag of the last answer even where that has nothing else to say."""
    sent, form = GRPC_CALLS[Operation.INFER_STREAM].encode(request, signature)
    message = _REQUEST.FromString(bytes(sent.message))
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return replace(sent, message=message.SerializeToString()), form


_STREAM_CALL = GRPC_CALLS[Operation.INFER_STREAM]
_STREAMS = Streams(_STREAM_CALL, _unwrap, many=True, known=_wrapped)
_FLAGGED = replace(_STREAMS, call=UpstreamCall(_encode_flagged, _STREAM_CALL.decode))


# --- rules of this wire alone


@_RULES("Fields that the protocol does not have are ignored.")
def unknown_fields(server: ServerUnderTest, draw: Draw) -> None:
    request = server.request(distinct(server.known, 1))
    right = server.answer(request)
    sent = grpc_request(server.encoded(request))
    number = draw(st.integers(200, 1000))
    text = draw(st.binary(max_size=20))
    head = (number << 3) | 2
    more = bytes([head & 127 | 128, head >> 7, len(text)]) + text
    exchange = server.send(replace(sent, message=bytes(sent.message) + more))
    expect(_succeeded(exchange), f"a request with the unknown field {number} was refused", exchange)
    have = _RESPONSE.FromString(bytes(grpc_reply(exchange).message))
    expect(len(have.outputs) == len(right.outputs), "with an unknown field the answer is another", exchange)


@_RULES("Contents both raw and typed are refused.", once=True)
def raw_and_typed(server: ServerUnderTest, draw: Draw) -> None:
    request = server.request(distinct(server.known, 1))
    sent = grpc_request(server.encoded(request, "typed"))
    raw = grpc_request(server.encoded(request))
    both = _REQUEST.FromString(bytes(sent.message))
    both.raw_input_contents.extend(_REQUEST.FromString(bytes(raw.message)).raw_input_contents)
    exchange = server.send(replace(sent, message=both.SerializeToString()))
    server.refuses(exchange, Mistake.INVALID, "contents both raw and typed")


@_RULES("A method that is none of the service's is UNIMPLEMENTED.", once=True)
def unknown_method(server: ServerUnderTest, draw: Draw) -> None:
    exchange = server.send(GrpcRequest("/inference.GRPCInferenceService/NoSuchThing", b""))
    expect(grpc_reply(exchange).code == _UNIMPLEMENTED, "it is not UNIMPLEMENTED", exchange)


@_STREAM_RULES("An answer in a stream is in a message that also has its error, if any.", once=True)
def streamed_form(server: ServerUnderTest, draw: Draw) -> None:
    streamed = alone(server, _good(server))
    # a client takes the name of the model for an error
    expect(not streamed.strange, "an answer in a stream is no ModelStreamInferResponse", streamed.ending)


@_STREAM_RULES("The last answer to a request of a stream, and no other, says that it is the last.", once=True)
def last_answer(server: ServerUnderTest, draw: Draw) -> None:
    streamed = alone(server, _good(server), _FLAGGED)
    if streamed.strange:
        raise InapplicableError(STRANGE)
    flags = [exchange.result.final for exchange in streamed.answers]
    right = [False] * (len(flags) - 1) + [True]
    expect(flags == right, f"the flags of the last answer are {flags}", streamed.ending)


def _good(server: ServerUnderTest) -> InferRequest:
    return server.request(distinct(known_in_streams(server), 1))


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
