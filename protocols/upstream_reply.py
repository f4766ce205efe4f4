"""What all dialects share about the replies of upstreams: gRPC and HTTP statuses, and invalid replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from interlingua.protocols.wire import GrpcAnswer
from interlingua.schemas import ErrorCode, InferenceError, bad_upstream
from interlingua.schemas.errors import UNKNOWN_KIND

T = TypeVar("T")

CODE_OF_GRPC_STATUS: Mapping[int, ErrorCode] = {
    1: ErrorCode.CANCELLED,
    3: ErrorCode.INVALID_TENSOR,
    4: ErrorCode.DEADLINE_EXCEEDED,
    7: ErrorCode.FORBIDDEN,
    8: ErrorCode.OVERLOADED,
    12: ErrorCode.UNSUPPORTED,
    13: ErrorCode.MODEL_FAILED,
    14: ErrorCode.UNAVAILABLE,
    16: ErrorCode.UNAUTHENTICATED,
}
"""The gRPC statuses that all dialects read alike; a number without an entry is BAD_UPSTREAM."""

CODE_OF_HTTP_STATUS: Mapping[int, ErrorCode] = {
    400: ErrorCode.INVALID_TENSOR,
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.UNSUPPORTED,
    413: ErrorCode.TOO_LARGE,
    429: ErrorCode.OVERLOADED,
    499: ErrorCode.CANCELLED,
    500: ErrorCode.MODEL_FAILED,
    501: ErrorCode.UNSUPPORTED,
    503: ErrorCode.UNAVAILABLE,
    504: ErrorCode.DEADLINE_EXCEEDED,
}
"""The same for HTTP."""

_UNKNOWN = 2
_FAULTS = frozenset({ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR, ErrorCode.UNREPRESENTABLE})


def grpc_error(answer: GrpcAnswer, codes: Mapping[int, ErrorCode]) -> InferenceError:
    """The error of a status other than OK, by ``codes``, with the upstream's message."""
    code = codes.get(answer.code, ErrorCode.BAD_UPSTREAM)
    details = UNKNOWN_KIND if answer.code == _UNKNOWN and _UNKNOWN in codes else None
    message = answer.details or f"gRPC status {answer.code} without a message"
    return InferenceError(code, message, details=details)


def read_reply(read: Callable[..., T], *arguments: Any) -> T:
    """The result of ``read(*arguments)``. An error that blames the sender of a message blames the upstream
    here: BAD_UPSTREAM."""
    try:
        return read(*arguments)
    except InferenceError as error:
        if error.code not in _FAULTS:
            raise
        raise bad_upstream(f"the upstream's answer is not valid: {error.message}") from error
