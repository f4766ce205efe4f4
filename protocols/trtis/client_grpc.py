"""Calls to an upstream over gRPC, and its answers.

A gRPC status other than OK is not from the dialect: it concerns the connection, bytes that are not a message,
or a proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.trtis.client_codec import PendingCall, version_of
from interlingua.protocols.trtis.client_status import check_status
from interlingua.protocols.trtis.codec import DIALECT_NAME
from interlingua.protocols.trtis.codec_grpc import SERVICE, decode_answer, encode_call, split_answer
from interlingua.protocols.upstream_reply import CODE_OF_GRPC_STATUS, grpc_error, read_reply
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    ErrorCode,
    InferResponse,
    ModelRef,
    ModelStatus,
    Readiness,
    Signature,
    not_carried,
)
from interlingua.schemas.trtis import MESSAGES

Call = UpstreamCall[GrpcRequest, GrpcAnswer]
Fields = Mapping[str, Any]

_CODES = {**CODE_OF_GRPC_STATUS, 5: ErrorCode.NOT_FOUND}


def _decode_infer(pending: PendingCall, answer: GrpcAnswer) -> InferResponse:
    if answer.code:
        raise grpc_error(answer, _CODES)
    message, raws = read_reply(lambda: split_answer(answer.message))
    check_status(message.request_status)
    return read_reply(lambda: decode_answer(pending, message.meta_data, raws))


def _call(rpc: str, fields: Callable[[Any], Fields], read: Callable[[Any, Any], Any]) -> Call:
    """A call of ``rpc``: the ``fields`` of the request out of the argument, the result by ``read`` out of the
    answer and the argument."""
    request = MESSAGES[f"nvidia.inferenceserver.{rpc}Request"]
    response = MESSAGES[f"nvidia.inferenceserver.{rpc}Response"]

    def encode(argument: Any, signature: Signature | None) -> tuple[GrpcRequest, Any]:
        try:
            return GrpcRequest(f"{SERVICE}{rpc}", request(**fields(argument)).SerializeToString()), argument
        except ValueError as error:
            raise not_carried(DIALECT_NAME, f"this question: {error}") from error

    def decode(argument: Any, answer: GrpcAnswer) -> Any:
        if answer.code:
            raise grpc_error(answer, _CODES)
        message = read_reply(lambda: parse_bounded(response, answer.message))
        check_status(message.request_status)
        return read(message, argument)

    return UpstreamCall(encode, decode)


def health_call(mode: str) -> Call:
    """Whether the server is ``live`` or ``ready``: a ``Readiness``."""
    return _call("Health", lambda argument: {"mode": mode}, lambda answer, argument: Readiness(answer.health))


def status_call(read_status: Callable[[Any, Any], Any]) -> Call:
    """The status of a model, or of the server for None, as read by ``read_status``."""
    return _call("Status", _status_fields, lambda answer, model: read_status(answer.server_status, model))


def control_call(kind: str) -> Call:
    """A ``load`` or ``unload`` of a model."""
    fields = {"type": kind.upper()}
    return _call(
        "ModelControl", lambda model: {"model_name": model.name, **fields}, lambda answer, model: None
    )


def _status_fields(model: ModelRef | None) -> Fields:
    if model is None:
        return {}
    version_of(model.version, model.name)
    return {"model_name": model.name}


def _index(answer: Any, argument: None) -> tuple[ModelStatus, ...]:
    return tuple([ModelStatus(model.name) for model in answer.index.models])


INFER_CALL: Call = UpstreamCall(encode_call, _decode_infer)
INDEX_CALL: Call = _call("Repository", lambda argument: {"index": True}, _index)
