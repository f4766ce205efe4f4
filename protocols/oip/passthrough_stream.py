"""Passthrough of a gRPC stream, message by message, tensors unread.

Requests are those of ``passthrough``, perhaps with the parameter for an empty final answer. The upstream does
not get that parameter: the end of its stream marks the last answer. Errors and answers of another form go
through ``stream_grpc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import GrpcEndpoint, Opened, PassthroughNames, StreamPassthrough
from interlingua.protocols.oip import stream_grpc
from interlingua.protocols.oip.codec import EMPTY_FINAL_RESPONSE
from interlingua.protocols.oip.codec_grpc import RAW_OUTPUT, RESPONSE
from interlingua.protocols.oip.passthrough import heads_of, is_usual, renamed_request
from interlingua.protocols.oip.stream_grpc import (
    FINAL_RESPONSE,
    INFER_RESPONSE,
    METHOD,
    decode_reply,
    in_stream,
    reply_fields,
)
from interlingua.protocols.protobuf_message import parse_split
from interlingua.protocols.protobuf_wire import join_parts
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import InferenceError, InferHeads, InferResponse, Signature

_MOST_OVERHEAD = 6
"""The tag and the length of the one field of an answer, in bytes."""


def _heads(opened: Opened[GrpcAnswer], signature: Signature) -> InferHeads | None:
    head, raws, *_ = opened.message
    if head.parameters and not _wants_empty_final(head.parameters):
        return None
    return heads_of(head, raws)


def _wants_empty_final(parameters: Any) -> bool:
    """Whether these are no parameters except a valid one for an empty final answer."""
    if len(parameters) != 1 or EMPTY_FINAL_RESPONSE not in parameters:
        return False
    choice: str | None = parameters[EMPTY_FINAL_RESPONSE].WhichOneof("parameter_choice")
    return choice == "bool_param"


def _call(opened: Opened[GrpcAnswer], names: PassthroughNames) -> GrpcRequest:
    head, raws, _, message = opened.message
    message, parts = renamed_request(head, raws, message, names)
    return GrpcRequest(METHOD, message, parts=parts)


def _answer(
    opened: Opened[GrpcAnswer], names: PassthroughNames, answer: GrpcAnswer
) -> Sequence[tuple[GrpcAnswer, str, bool] | InferResponse]:
    try:
        found = None if answer.code else _renamed(opened, names, answer.message)
    except InferenceError:
        found = None
    return decode_reply({}, answer) if found is None else (found,)


def _renamed(
    opened: Opened[GrpcAnswer], names: PassthroughNames, message: Buffer
) -> tuple[GrpcAnswer, str, bool] | None:
    """The caller's answer, the version that gave it, and whether it is the last; None if it must be decoded,
    as an error, an answer without outputs, or one without the flag of the last answer must."""
    fields = reply_fields(message)
    inner = fields.get(INFER_RESPONSE)
    if inner is None or len(fields) != 1:
        return None
    request = opened.message[0]
    head, raws = parse_split(RESPONSE, inner, RAW_OUTPUT)
    if FINAL_RESPONSE not in head.parameters:
        return None
    flag = head.parameters[FINAL_RESPONSE]
    outputs = [names.back.get(tensor.name, tensor.name) for tensor in head.outputs]
    wanted = {output.name for output in request.outputs} or names.order
    # not every response need have every output
    expected = [name for name in names.order if name in outputs and name in wanted]
    if not outputs or len(raws) != len(outputs) or outputs != expected:
        return None
    if flag.WhichOneof("parameter_choice") != "bool_param" or not all(map(is_usual, head.outputs, raws)):
        return None
    last, version = flag.bool_param, head.model_version
    whole = len(message) <= len(inner) + _MOST_OVERHEAD  # else the field is repeated
    if whole and head.model_name == names.model and head.id == request.id and not names.back:
        return GrpcAnswer(message), version, last
    head.model_name, head.id = names.model, request.id
    for tensor, name in zip(head.outputs, outputs, strict=True):
        tensor.name = name
    renamed, parts = join_parts(head.SerializeToString(), RAW_OUTPUT, raws)
    return in_stream(GrpcAnswer(renamed, parts=parts)), version, last


PASSTHROUGH: StreamPassthrough[GrpcRequest, GrpcAnswer, GrpcAnswer] = StreamPassthrough(
    _heads, _call, _answer
)

_INFER = replace(stream_grpc.INFER, stream_passthrough=PASSTHROUGH)

STREAM_CALL = replace(stream_grpc.STREAM_CALL, stream_passthrough=PASSTHROUGH)


def _open(request: GrpcRequest) -> Opened[GrpcAnswer]:
    opened = stream_grpc.open_stream_infer(request)
    opened.action, opened.message = _INFER, (*opened.message, request.message)
    return opened


STREAM_ENDPOINT: GrpcEndpoint = replace(stream_grpc.STREAM_ENDPOINT, open=_open)
