"""The calls to an upstream over gRPC: one table.

A gRPC status other than OK does not come from the dialect itself: it tells of the connection, of bytes
that were no message, or of something between us and the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from protocols.dialect import UpstreamCall
from protocols.trtis.client_codec import Asked, unrepresentable, version_of
from protocols.trtis.client_status import READERS, check_status, reading, refused_readiness
from protocols.trtis.codec_grpc import SERVICE, decode_answer, encode_call, parse, split_answer
from protocols.wire import GrpcAnswer, GrpcRequest
from schemas import (
    ErrorCode,
    InferenceError,
    InferResponse,
    ModelRef,
    ModelStatus,
    Operation,
    Readiness,
    Signature,
)
from schemas.trtis import MESSAGES

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


def _health_call(mode: str) -> Call:
    return _call("Health", lambda argument: {"mode": mode}, lambda told, argument: Readiness(told.health))


def _status_call(operation: Operation) -> Call:
    return _call("Status", _status_fields, lambda told, model: READERS[operation](told.server_status, model))


def _status_fields(model: ModelRef | None) -> Fields:
    if model is None:
        return {}
    version_of(model.version, model.name)
    return {"model_name": model.name}


def _tolerant(call: Call) -> Call:
    def decode(form: Any, answer: GrpcAnswer) -> Any:
        try:
            return call.decode(form, answer)
        except InferenceError as error:
            return refused_readiness(error)

    return UpstreamCall(call.encode, decode)


def _control_call(kind: str) -> Call:
    return _call(
        "ModelControl", lambda model: {"model_name": model.name, "type": kind}, lambda told, model: None
    )


def _index(told: Any, argument: None) -> tuple[ModelStatus, ...]:
    return tuple([ModelStatus(model.name) for model in told.index.models])


GRPC_CALLS: Mapping[Operation, Call] = {
    Operation.INFER: UpstreamCall(encode_call, _decode_infer),
    Operation.LIVE: _health_call("live"),
    Operation.READY: _health_call("ready"),
    **{operation: _status_call(operation) for operation in READERS},
    Operation.MODEL_READY: _tolerant(_status_call(Operation.MODEL_READY)),
    Operation.REPOSITORY_INDEX: _call("Repository", lambda argument: {"index": True}, _index),
    Operation.MODEL_LOAD: _control_call("LOAD"),
    Operation.MODEL_UNLOAD: _control_call("UNLOAD"),
}
"""The calls that the dialect can make over gRPC."""
