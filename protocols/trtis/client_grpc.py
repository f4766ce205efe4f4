"""Calls to an upstream over gRPC, and its answers.

A gRPC status other than OK does not come from the dialect itself: it tells of the connection, of bytes
that were no message, or of something between us and the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.trtis.client_codec import Asked, unrepresentable, version_of
from interlingua.protocols.trtis.client_status import check_status, reading
from interlingua.protocols.trtis.codec_grpc import SERVICE, decode_answer, encode_call, parse, split_answer
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferResponse,
    ModelRef,
    ModelStatus,
    Readiness,
    Signature,
)
from interlingua.schemas.trtis import MESSAGES

Call = UpstreamCall[GrpcRequest, GrpcAnswer]
Fields = Mapping[str, Any]

CODE_OF_GRPC_STATUS: Mapping[int, ErrorCode] = {
    1: ErrorCode.CANCELLED,
    3: ErrorCode.INVALID_TENSOR,
    4: ErrorCode.DEADLINE_EXCEEDED,
    5: ErrorCode.NOT_FOUND,
    7: ErrorCode.FORBIDDEN,
    8: ErrorCode.OVERLOADED,
    12: ErrorCode.UNSUPPORTED,
    13: ErrorCode.MODEL_FAILED,
    14: ErrorCode.UNAVAILABLE,
    16: ErrorCode.UNAUTHENTICATED,
}
"""What a gRPC status means; any other is BAD_UPSTREAM."""


def _decode_infer(asked: Asked, answer: GrpcAnswer) -> InferResponse:
    _check_call(answer)
    message, raws = reading(lambda: split_answer(answer.message))
    check_status(message.request_status)
    return reading(lambda: decode_answer(asked, message.meta_data, raws))


def _check_call(answer: GrpcAnswer) -> None:
    if answer.code:
        code = CODE_OF_GRPC_STATUS.get(answer.code, ErrorCode.BAD_UPSTREAM)
        raise InferenceError(code, answer.details or f"gRPC status {answer.code} without a message")


def _call(rpc: str, fields: Callable[[Any], Fields], read: Callable[[Any, Any], Any]) -> Call:
    """A call of ``rpc``: ``fields`` of the request out of the argument, ``read`` makes the result of the
    answer and the argument."""
    request = MESSAGES[f"nvidia.inferenceserver.{rpc}Request"]
    response = MESSAGES[f"nvidia.inferenceserver.{rpc}Response"]

    def encode(argument: Any, signature: Signature | None) -> tuple[GrpcRequest, Any]:
        try:
            return GrpcRequest(f"{SERVICE}{rpc}", request(**fields(argument)).SerializeToString()), argument
        except ValueError as error:
            raise unrepresentable(f"this question: {error}") from error

    def decode(argument: Any, answer: GrpcAnswer) -> Any:
        _check_call(answer)
        message = reading(lambda: parse(response, answer.message))
        check_status(message.request_status)
        return read(message, argument)

    return UpstreamCall(encode, decode)


def health_call(mode: str) -> Call:
    """Asks whether the server is ``live`` or ``ready``: a ``Readiness``."""
    return _call("Health", lambda argument: {"mode": mode}, lambda told, argument: Readiness(told.health))


def status_call(read_status: Callable[[Any, Any], Any]) -> Call:
    """Asks for the status of a model, or of the server for None: what ``read_status`` makes of it."""
    return _call("Status", _status_fields, lambda told, model: read_status(told.server_status, model))


def control_call(kind: str) -> Call:
    """Asks the server to ``load`` or ``unload`` a model."""
    fields = {"type": kind.upper()}
    return _call("ModelControl", lambda model: {"model_name": model.name, **fields}, lambda told, model: None)


def _status_fields(model: ModelRef | None) -> Fields:
    if model is None:
        return {}
    version_of(model.version, model.name)
    return {"model_name": model.name}


def _index(told: Any, argument: None) -> tuple[ModelStatus, ...]:
    return tuple([ModelStatus(model.name) for model in told.index.models])


INFER_CALL: Call = UpstreamCall(encode_call, _decode_infer)
INDEX_CALL: Call = _call("Repository", lambda argument: {"index": True}, _index)
