"""Calls to an upstream over gRPC and bRPC: a protobuf message each way.

A gRPC status other than OK, or a bRPC error, is not from the dialect: it concerns the connection, bytes that
are not a message, or overload. The bRPC client raises the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from interlingua.protocols.dialect import Call, Reply, UpstreamCall
from interlingua.protocols.grps.client import QUESTIONS, STREAM, Question, Read, upstream_call
from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.server_rpc import BRPC_SERVICE, GRPC_SERVICE
from interlingua.protocols.upstream_reply import CODE_OF_GRPC_STATUS, grpc_error, read_reply
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import ErrorCode, InferenceError, InferResponse, Operation, Signature

GrpcCall = UpstreamCall[GrpcRequest, GrpcAnswer]
BrpcCall = UpstreamCall[BrpcRequest, BrpcAnswer]

_CODES = {**CODE_OF_GRPC_STATUS, 3: ErrorCode.MALFORMED}


def _read(read: Read, message: Buffer) -> Any:
    return read(read_reply(lambda: read_message(message)))


def _call(
    question: Question, request: Callable[[bytes], Call], decode: Callable[[Read, Reply], Any]
) -> UpstreamCall[Call, Reply]:
    def encode(argument: Any, signature: Signature | None) -> tuple[Call, Read]:
        message, read = question.encode(argument, signature)
        return request(write_message(message)), read

    return upstream_call(question, encode, decode)


def _grpc_call(question: Question) -> GrpcCall:
    return _call(question, partial(GrpcRequest, f"/{GRPC_SERVICE}/{question.method}"), _decode_grpc)


def _decode_grpc(read: Read, answer: GrpcAnswer) -> Any:
    if answer.code:
        raise grpc_error(answer, _CODES)
    return _read(read, answer.message)


def _decode_piece(read: Read, answer: GrpcAnswer) -> tuple[InferResponse]:
    return (_decode_grpc(read, answer),)


def _brpc_call(question: Question) -> BrpcCall:
    return _call(question, partial(BrpcRequest, BRPC_SERVICE, question.method), _decode_brpc)


def _decode_brpc(read: Read, answer: BrpcAnswer) -> Any:
    if not answer.message:  # the original servers send a status or data, and baidu_std frames may be empty
        raise InferenceError(ErrorCode.BAD_UPSTREAM, "the upstream's answer is empty")
    return _read(read, answer.message)


GRPC_CALLS: Mapping[Operation, GrpcCall] = {
    **{operation: _grpc_call(question) for operation, question in QUESTIONS.items()},
    Operation.INFER_STREAM: UpstreamCall(_grpc_call(STREAM).encode, _decode_piece),
}

BRPC_CALLS: Mapping[Operation, BrpcCall] = {
    operation: _brpc_call(question) for operation, question in QUESTIONS.items()
}
