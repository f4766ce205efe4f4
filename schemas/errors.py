"""The error of a request and its codes.

``HTTP_STATUS`` is the status of each code over HTTP; a dialect overrides entries if its original servers
differ.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import partial
from typing import Any

from interlingua.schemas.bounded_text import MESSAGE_CHARS, shortened


class ErrorCode(enum.Enum):
    """Why a request failed. ``value`` is a stable number, which GraphPipe carries in band; ``retryable``: the
    same request may succeed later."""

    MALFORMED = (1, False)
    """The bytes are not a message of the dialect."""
    INVALID_TENSOR = (2, False)
    """A tensor or an option contradicts itself or the model: size, shape, datatype, name, version."""
    UNREPRESENTABLE = (3, False)
    """The dialect has no form for this value."""
    NOT_FOUND = (4, False)
    ALREADY_EXISTS = (5, False)
    UNSUPPORTED = (6, False)
    """The operation or option does not exist here."""
    UNAUTHENTICATED = (7, False)
    FORBIDDEN = (8, False)
    TOO_LARGE = (9, False)
    OVERLOADED = (10, True)
    """Shed: the queue or the concurrency limit is full."""
    UNAVAILABLE = (11, True)
    """Draining, not loaded yet, or the upstream is down."""
    DEADLINE_EXCEEDED = (12, True)
    CANCELLED = (13, True)
    MODEL_FAILED = (14, False)
    BAD_UPSTREAM = (15, False)
    """The upstream's answer is not valid in its dialect."""
    INTERNAL = (16, False)

    retryable: bool

    def __new__(cls, number: int, retryable: bool) -> ErrorCode:
        member = object.__new__(cls)
        member._value_ = number
        member.retryable = retryable
        return member

    __hash__ = object.__hash__


HTTP_STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.MALFORMED: 400,
    ErrorCode.INVALID_TENSOR: 400,
    ErrorCode.UNREPRESENTABLE: 422,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.ALREADY_EXISTS: 400,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.OVERLOADED: 429,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.DEADLINE_EXCEEDED: 504,
    ErrorCode.CANCELLED: 499,
    ErrorCode.MODEL_FAILED: 500,
    ErrorCode.BAD_UPSTREAM: 502,
    ErrorCode.INTERNAL: 500,
}
"""The HTTP status of each code: RFC 9110 section 15, for 429 RFC 6585 section 4. No RFC defines 499, nginx's
status for a client that has closed its connection."""

UNKNOWN_KIND: Mapping[str, Any] = {"kind": "unknown"}
"""The details of a MODEL_FAILED without a more precise status; gRPC's status UNKNOWN."""

MODEL_RAN = "model_ran"
"""The key in the details of an error that a running model has answered with; its code may be any."""

SHARED_MEMORY_REGION = "shared_memory_region"
"""The key in the details of a NOT_FOUND that concerns a shared-memory region; its value is the name."""


TRACEBACK = "traceback"
"""The key in the details of an upstream's error whose message is the last line of a traceback; its value is
the whole text, for the log alone."""

RESTRICTED_HEADER = "restricted_header"
"""The key in the details of a FORBIDDEN for callers without the secret of a header; its value is the name of
the header. Triton has its own status and text for them."""


class InferenceError(Exception):
    """A request that cannot be answered.

    ``message`` names the tensor, key or option, in bounded length (``bounded_text``). ``origin`` is the model
    or upstream that failed, empty for an error of the request itself. ``details`` are machine-readable (never
    tensor contents). ``begun``: a server may have done some of the work, so the request must not be repeated.
    ``before`` is the response that the model has sent before it failed, for ``runtime`` alone.
    """

    before: Any = None

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        origin: str = "",
        retryable: bool | None = None,
        details: Mapping[str, Any] | None = None,
        begun: bool = False,
    ) -> None:
        message = shortened(message, MESSAGE_CHARS)
        super().__init__(message)
        self.code = code
        self.message = message
        self.origin = origin
        self.retryable = code.retryable if retryable is None else retryable
        self.details: Mapping[str, Any] = details or {}
        self.begun = begun

    @property
    def model_not_found(self) -> bool:
        """Whether the model, or this version of it, does not exist."""
        return self.code is ErrorCode.NOT_FOUND and SHARED_MEMORY_REGION not in self.details

    @property
    def is_unknown(self) -> bool:
        """Whether the error states no more precise kind: see ``UNKNOWN_KIND``."""
        return bool(self.details.get("kind") == UNKNOWN_KIND["kind"])

    def __repr__(self) -> str:
        return f"InferenceError({self.code.name}, {self.message!r})"


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of ``error`` and of the errors before it. Their frames hold the request, with its
    body, and one of them often the error itself: only the garbage collector would free such a cycle."""
    while True:
        error.__traceback__ = None
        earlier = error.__cause__ or error.__context__
        error.__cause__ = error.__context__ = None
        if earlier is None:
            return
        error = earlier


malformed = partial(InferenceError, ErrorCode.MALFORMED)
invalid_tensor = partial(InferenceError, ErrorCode.INVALID_TENSOR)
unrepresentable = partial(InferenceError, ErrorCode.UNREPRESENTABLE)
bad_upstream = partial(InferenceError, ErrorCode.BAD_UPSTREAM)
unsupported = partial(InferenceError, ErrorCode.UNSUPPORTED)
unavailable = partial(InferenceError, ErrorCode.UNAVAILABLE)
model_failed = partial(InferenceError, ErrorCode.MODEL_FAILED)


def not_carried(dialect: str, what: object) -> InferenceError:
    """The UNREPRESENTABLE of a ``dialect`` that has no form for ``what``."""
    return unrepresentable(f"dialect '{dialect}' cannot carry {what}")


def not_text(parameter: str, by: str, *, origin: str = "") -> InferenceError:
    """The UNREPRESENTABLE of a request parameter of bytes, which ``by`` does not take."""
    return unrepresentable(
        f"request parameter '{parameter}' is not UTF-8 text, as {by} needs: only a GraphPipe server takes it",
        origin=origin,
    )
