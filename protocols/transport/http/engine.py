"""What the engines of an HTTP listener share: their settings, and the words in which they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from interlingua.protocols.transport.http.answer import size_of
from interlingua.protocols.wire import HttpAnswer, HttpHandler, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError

FAULT = "internal error; the server's log has the details"
"""What is told of a handler that raises."""

READING_TURNS = 2
"""In how many turns of the loop what has arrived is read."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Whom a listener asks, and how long it waits for its clients; ``protocols.transport.http.server`` says
    what for. ``accept_te_with_length``: take requests with a Transfer-Encoding and a Content-Length."""

    handler: HttpHandler
    max_response_bytes: int | None
    idle_secs: float
    stall_secs: float
    half_closed_secs: float
    linger_secs: float
    accept_te_with_length: bool = False


class Engine(Protocol):
    """Speaks HTTP on connections that somebody else accepts."""

    @property
    def at_work(self) -> int:
        """How many requests are not answered yet."""

    def connection(self) -> asyncio.Protocol:
        """What a new connection is to call."""

    async def stop(self, grace_secs: float) -> int:
        """Close idle connections, let running requests end for ``grace_secs``, cut the rest: how many these
        were. Answers on the way say ``Connection: close``."""


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


async def turns(count: int) -> None:
    """Let the event loop do whatever is due, ``count`` times."""
    for _ in range(count):
        await asyncio.sleep(0)


def _too_large(what: str, size: int, key: str, limit: int | None) -> InferenceError:
    return InferenceError(
        ErrorCode.TOO_LARGE,
        f"the {what} has {size} bytes, more than the {limit} that {key} of this listener allows",
    )
