"""Inference over gRPC: Infer messages to and from the IR, as a server and as a client.

A received message is split into its raw contents, as views, and the small rest, which protobuf parses. An
outgoing message copies tensor bytes once. Errors belong to ``server_grpc`` and ``client_grpc``.
"""

from __future__ import annotations

from typing import Any

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.protobuf_message import parse_bounded, parse_split, split_off
from interlingua.protocols.protobuf_wire import MAX_MESSAGE_BYTES, join_parts
from interlingua.protocols.trtis.client_codec import LATEST, PendingCall, size_of, version_of
from interlingua.protocols.trtis.client_codec import decode_response as read_response
from interlingua.protocols.trtis.client_codec import encode_request as write_request
from interlingua.protocols.trtis.codec import (
    DIALECT_NAME,
    Take,
    TrtisReplyForm,
    decode_request,
    encode_response,
)
from interlingua.protocols.trtis.status import success
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
    invalid_tensor,
    not_carried,
)
from interlingua.schemas.trtis import MESSAGES

SERVICE = "/nvidia.inferenceserver.GRPCService/"
"""The path of a method of the dialect, up to the method's name."""

_REQUEST: Any = MESSAGES["nvidia.inferenceserver.InferRequest"]
_RESPONSE: Any = MESSAGES["nvidia.inferenceserver.InferResponse"]
_RAW_INPUT: int = _REQUEST.RAW_INPUT_FIELD_NUMBER
_RAW_OUTPUT: int = _RESPONSE.RAW_OUTPUT_FIELD_NUMBER

Raws = list[memoryview]


# --- as a server


def open_infer(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the headers of an Infer request; version -1 is the latest, 0 is a version. Raises MALFORMED."""
    rest, raws = split_off(_REQUEST, request.message, _RAW_INPUT)
    message = parse_bounded(_REQUEST, rest)
    version = "" if message.model_version == LATEST else str(message.model_version)
    return Opened(_INFER, message.model_name, version, (message.meta_data, raws, request.context))


def decode_infer(opened: Opened[GrpcAnswer], signature: Signature) -> tuple[InferRequest, TrtisReplyForm]:
    """The request and the form of its answer. Raises as ``codec.decode_request``."""
    header, raws, context = opened.message
    take = _in_turn(opened.model, raws)
    return decode_request(header, opened.model, opened.version, signature, context, take)


def encode_infer(form: TrtisReplyForm, response: InferResponse) -> GrpcAnswer:
    """The answer, with raw contents for every output, empty for classes and shared memory. Raises as
    ``codec.encode_response``, and TOO_LARGE."""
    header, contents = encode_response(form, response)
    size = sum(map(len, contents))
    if size > MAX_MESSAGE_BYTES:
        raise InferenceError(
            ErrorCode.TOO_LARGE,
            f"Response has byte size {size} which exceeds gRPC's byte size limit {MAX_MESSAGE_BYTES}",
        )
    head = _RESPONSE(request_status=success(form.context), meta_data=header)
    message, parts = join_parts(head.SerializeToString(), _RAW_OUTPUT, contents)
    return GrpcAnswer(message, parts=parts)


_INFER: Action[GrpcAnswer] = Action(Operation.INFER, encode_infer, decode_infer)


def _in_turn(model: str, raws: Raws) -> Take:
    """Gives ``raws`` one by one; surplus ones are ignored."""
    rest = enumerate(raws)

    def take(name: str, size: int) -> memoryview:
        place, raw = next(rest, (len(raws), None))
        if raw is None:
            raise invalid_tensor(
                f"expected tensor data for at least {place + 1} inputs but got only {place} sets of data "
                f"for model '{model}'"
            )
        if len(raw) != size:
            raise invalid_tensor(
                f"unexpected size {len(raw)} for input '{name}', expecting {size} for model '{model}'"
            )
        return raw

    return take


# --- as a client


def encode_call(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, PendingCall]:
    """The call and what to read its answer with. Raises as ``client_codec.encode_request``, and TOO_LARGE."""
    header, contents, pending = write_request(request, signature)
    version = version_of(request.version, request.model)
    try:
        head = _REQUEST(model_name=request.model, model_version=version, meta_data=header)
    except ValueError as error:
        raise not_carried(DIALECT_NAME, f"the model name {request.model!a}: {error}") from error
    message, parts = join_parts(head.SerializeToString(), _RAW_INPUT, contents)
    return GrpcRequest(f"{SERVICE}Infer", message, parts=parts), pending


def split_answer(message: Buffer) -> tuple[Any, Raws]:
    """An ``InferResponse`` without its raw contents, and those. Raises MALFORMED."""
    return parse_split(_RESPONSE, message, _RAW_OUTPUT)


def decode_answer(pending: PendingCall, header: Any, raws: Raws) -> InferResponse:
    """An upstream's answer. Raises INVALID_TENSOR naming the output."""
    if len(raws) != len(header.output):
        raise invalid_tensor(f"there are {len(header.output)} outputs, but {len(raws)} raw_output")
    # those in shared memory have an entry too, by position
    rest = iter(
        [raw for entry, raw in zip(header.output, raws, strict=True) if entry.name not in pending.placements]
    )

    def take(name: str, datatype: Datatype, count: int) -> memoryview:
        raw = next(rest)
        size = size_of(name, datatype, count, raw)
        if size != len(raw):
            raise invalid_tensor(
                f"output '{name}' needs {size} bytes for {count} elements, it has {len(raw)}"
            )
        return raw

    return read_response(pending, header, take)
