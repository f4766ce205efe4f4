"""The errors that Python models raise and receive, by the codes of both sides."""

from __future__ import annotations

from interlingua.runtime.python_worker.triton_python_backend_utils import TritonError
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.errors import MODEL_RAN, UNKNOWN_KIND

_CODES = {
    TritonError.NOT_FOUND: ErrorCode.NOT_FOUND,
    TritonError.INVALID_ARG: ErrorCode.INVALID_TENSOR,
    TritonError.UNAVAILABLE: ErrorCode.UNAVAILABLE,
    TritonError.UNSUPPORTED: ErrorCode.UNSUPPORTED,
    TritonError.ALREADY_EXISTS: ErrorCode.ALREADY_EXISTS,
    TritonError.CANCELLED: ErrorCode.CANCELLED,
}
"""The code of each error that a model raises; any other is MODEL_FAILED."""

_REPORTED = {code: number for number, code in _CODES.items()} | {
    ErrorCode.MALFORMED: TritonError.INVALID_ARG,
    ErrorCode.UNREPRESENTABLE: TritonError.UNSUPPORTED,
    ErrorCode.TOO_LARGE: TritonError.INVALID_ARG,
    ErrorCode.OVERLOADED: TritonError.UNAVAILABLE,
    ErrorCode.DEADLINE_EXCEEDED: TritonError.CANCELLED,
}
"""The code that a model receives when its call of another fails; by default INTERNAL."""


def error_of(code: int, message: str) -> InferenceError:
    details = {MODEL_RAN: True, **(UNKNOWN_KIND if code == TritonError.UNKNOWN else {})}
    return InferenceError(_CODES.get(code, ErrorCode.MODEL_FAILED), message, retryable=False, details=details)


def reported_error(error: InferenceError) -> tuple[int, str]:
    other = TritonError.UNKNOWN if error.is_unknown else TritonError.INTERNAL
    return _REPORTED.get(error.code, other), error.message
