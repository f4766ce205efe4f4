"""One error for everything that can go wrong with a request, and the codes that it may carry.

An error says what happened (``code``), in words for a person (``message``), and where (``origin``).
How a code looks on a wire belongs to each dialect's codec; no transport appears here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any


class ErrorCode(enum.Enum):
    """Why a request failed. ``value`` is a stable number, which GraphPipe carries in band;
    ``retryable`` tells whether the same request may succeed later without a change."""

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
    """The upstream answered something that its dialect does not allow."""
    INTERNAL = (16, False)

    retryable: bool

    def __new__(cls, number: int, retryable: bool) -> ErrorCode:
        member = object.__new__(cls)
        member._value_ = number
        member.retryable = retryable
        return member

    __hash__ = object.__hash__


UNKNOWN_KIND: Mapping[str, Any] = {"kind": "unknown"}
"""The details of a MODEL_FAILED that does not know its own kind. gRPC has a status for it, UNKNOWN."""


class InferenceError(Exception):
    """A request that cannot be answered.

    ``message`` names the tensor, key or option at fault. ``origin`` is empty for the request itself,
    else the model or upstream that failed. ``details`` are machine-readable extras (never tensor
    contents). ``begun`` tells of an error that may help to ask elsewhere whether some of the work may have
    been done by then: such a request must not be repeated.
    """

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
        super().__init__(message)
        self.code = code
        self.message = message
        self.origin = origin
        self.retryable = code.retryable if retryable is None else retryable
        self.details: Mapping[str, Any] = details or {}
        self.begun = begun

    def __repr__(self) -> str:
        return f"InferenceError({self.code.name}, {self.message!r})"
