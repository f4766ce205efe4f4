"""Questions to an upstream over gRPC and over bRPC: a message in protobuf each way, and no other place for
what went wrong.

A status of gRPC other than OK, and an error of bRPC, do not come from the dialect itself: they tell of the
connection, of bytes that were no message, or of too much to do. Those of bRPC are raised by whoever calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.grps.client import QUESTIONS, STREAM, Question, Read, read_answer, upstream_call
from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.server_rpc import BRPC_SERVICE, GRPC_SERVICE
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import ErrorCode, InferenceError, InferResponse, Operation, Signature

GrpcCall = UpstreamCall[GrpcRequest, GrpcAnswer]
BrpcCall = UpstreamCall[BrpcRequest, BrpcAnswer]

CODE_OF_GRPC_STATUS: Mapping[int, ErrorCode] = {
    1: ErrorCode.CANCELLED,
    3: ErrorCode.MALFORMED,
    4: ErrorCode.DEADLINE_EXCEEDED,
    7: ErrorCode.FORBIDDEN,
    8: ErrorCode.OVERLOADED,
    12: ErrorCode.UNSUPPORTED,
    13: ErrorCode.MODEL_FAILED,
    14: ErrorCode.UNAVAILABLE,
    16: ErrorCode.UNAUTHENTICATED,
}
"""What a gRPC status means; any other is BAD_UPSTREAM."""


def _read(read: Read, message: Buffer) -> Any:
    return read(read_answer(lambda: read_message(message)))


def _grpc_call(question: Question) -> GrpcCall:
    path = f"/{GRPC_SERVICE}/{question.method}"

    def encode(argument: Any, signature: Signature | None) -> tuple[GrpcRequest, Read]:
        message, read = question.ask(argument, signature)
        return GrpcRequest(path, write_message(message)), read

    return upstream_call(question, encode, _decode_grpc)


def _decode_grpc(read: Read, answer: GrpcAnswer) -> Any:
    if answer.code:
        code = CODE_OF_GRPC_STATUS.get(answer.code, ErrorCode.BAD_UPSTREAM)
        raise InferenceError(code, answer.details or f"gRPC status {answer.code} without a message")
    return _read(read, answer.message)


def _decode_piece(read: Read, answer: GrpcAnswer) -> tuple[InferResponse]:
    return (_decode_grpc(read, answer),)


def _brpc_call(question: Question) -> BrpcCall:
    def encode(argument: Any, signature: Signature | None) -> tuple[BrpcRequest, Read]:
        message, read = question.ask(argument, signature)
        return BrpcRequest(BRPC_SERVICE, question.method, write_message(message)), read

    return upstream_call(question, encode, _decode_brpc)


def _decode_brpc(read: Read, answer: BrpcAnswer) -> Any:
    return _read(read, answer.message)


GRPC_CALLS: Mapping[Operation, GrpcCall] = {
    **{operation: _grpc_call(question) for operation, question in QUESTIONS.items()},
    Operation.INFER_STREAM: UpstreamCall(_grpc_call(STREAM).encode, _decode_piece),
}

BRPC_CALLS: Mapping[Operation, BrpcCall] = {
    operation: _brpc_call(question) for operation, question in QUESTIONS.items()
}
