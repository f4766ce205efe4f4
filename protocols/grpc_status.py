"""Errors as statuses of gRPC and back, for dialects whose original servers follow gRPC's own meanings."""

from __future__ import annotations

from collections.abc import Mapping

from interlingua.protocols import upstream_reply
from interlingua.schemas import ErrorCode

GRPC_STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.MALFORMED: 13,  # bytes that are no message, as gRPC's own servers answer
    ErrorCode.INVALID_TENSOR: 3,
    ErrorCode.UNREPRESENTABLE: 9,
    ErrorCode.NOT_FOUND: 5,
    ErrorCode.ALREADY_EXISTS: 6,
    ErrorCode.UNSUPPORTED: 12,
    ErrorCode.UNAUTHENTICATED: 16,
    ErrorCode.FORBIDDEN: 7,
    ErrorCode.TOO_LARGE: 8,
    ErrorCode.OVERLOADED: 8,
    ErrorCode.UNAVAILABLE: 14,
    ErrorCode.DEADLINE_EXCEEDED: 4,
    ErrorCode.CANCELLED: 1,
    ErrorCode.MODEL_FAILED: 13,
    ErrorCode.BAD_UPSTREAM: 13,
    ErrorCode.INTERNAL: 13,
}
"""The status of each error code, by the number of google.rpc.Code."""

CODE_OF_GRPC_STATUS: Mapping[int, ErrorCode] = {
    **upstream_reply.CODE_OF_GRPC_STATUS,
    2: ErrorCode.MODEL_FAILED,
    5: ErrorCode.NOT_FOUND,
    6: ErrorCode.ALREADY_EXISTS,
    9: ErrorCode.UNREPRESENTABLE,
}
"""The meaning of an upstream's status; any other is BAD_UPSTREAM."""
