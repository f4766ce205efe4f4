"""What the engines of an HTTP listener share: their settings, and the words in which they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from interlingua.protocols.transport.http1.answer import size_of
from interlingua.protocols.transport.listener import HALF_CLOSED_SECS, IDLE_SECS, LINGER_SECS, STALL_SECS
from interlingua.protocols.wire import HttpAnswer, HttpHandler, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError

FAULT = "internal error; the server's log has the details"
"""What is told of a handler that raises."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A listener's handler and limits; ``transport.listener`` explains the times. ``accept_te_with_length``:
    accept requests with both Transfer-Encoding and Content-Length, which intermediaries may frame differently
    (RFC 9112, 6.1 and 11.2)."""

    handler: HttpHandler
    max_response_bytes: int | None = None
    idle_secs: float = IDLE_SECS
    stall_secs: float = STALL_SECS
    half_closed_secs: float = HALF_CLOSED_SECS
    linger_secs: float = LINGER_SECS
    accept_te_with_length: bool = False


class Engine(Protocol):
    """Speaks HTTP on connections that somebody else accepts."""

    @property
    def at_work(self) -> int:
        """The number of requests in flight."""

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""

    async def stop(self, grace_secs: float) -> int:
        """Drain, cut and abort, as ``ConnectionSet.drain``. Answers meanwhile have ``Connection: close``."""


def within(limit: int | None, request: HttpRequest, answer: HttpAnswer, handler: HttpHandler) -> HttpAnswer:
    """``answer`` where it is no stream and has at most ``limit`` bytes, else the refusal to send it."""
    if limit is None or isinstance(answer.parts, AsyncIterator):
        return answer
    size = sum(map(size_of, answer.parts))
    if size <= limit:
        return answer
    return handler.refuse(request, _too_large("answer", size, "max_response_bytes", limit))


def request_too_large(limit: int | None, size: int) -> InferenceError:
    """Why a request body of ``size`` bytes is refused."""
    return _too_large("request body", size, "max_request_bytes", limit)


def stalled(secs: float) -> InferenceError:
    """Why a request is refused whose body stands still."""
    return InferenceError(
        ErrorCode.DEADLINE_EXCEEDED, f"no byte of the request body arrived for {secs:g} seconds"
    )


def badly_framed() -> InferenceError:
    """Why a request is refused whose chunks are none."""
    return InferenceError(ErrorCode.MALFORMED, "the request body is not framed as HTTP")


def _too_large(what: str, size: int, key: str, limit: int | None) -> InferenceError:
    return InferenceError(
        ErrorCode.TOO_LARGE,
        f"the {what} has {size} bytes, more than the {limit} that {key} of this listener allows",
    )
