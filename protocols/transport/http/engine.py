"""What the engines of an HTTP listener share: settings, and the errors they refuse with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from interlingua.protocols.transport.http1.answer import text_answer
from interlingua.protocols.transport.http1.body import (
    SMALL_CHUNK_BYTES,
    SMALL_CHUNKS_PER_SEC,
    BodyError,
    SmallChunksError,
)
from interlingua.protocols.transport.http1.headers import KnownHeads
from interlingua.protocols.transport.listener import HALF_CLOSED_SECS, LINGER_SECS
from interlingua.protocols.transport.load import ListenerLoad, RefusedRequest
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.wire import HttpAnswer, HttpHandler, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError

FAULT = "internal error; the server's log has the details"
"""The answer's text if a handler raises."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A listener's handler and limits; ``transport.timeouts`` and ``transport.listener`` explain the times.
    ``accept_te_with_length``: accept requests with both Transfer-Encoding and Content-Length, which
    intermediaries may frame differently (RFC 9112, 6.1 and 11.2)."""

    handler: HttpHandler
    max_response_bytes: int | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    half_closed_secs: float = HALF_CLOSED_SECS
    linger_secs: float = LINGER_SECS
    accept_te_with_length: bool = False
    load: ListenerLoad = field(default_factory=ListenerLoad)
    known: KnownHeads = field(default_factory=KnownHeads)


class Engine(Protocol):
    """Speaks HTTP on accepted connections."""

    @property
    def at_work(self) -> int:
        """The number of requests in flight."""

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""

    def retire(self) -> None:
        """Have the next answer of each connection be its last, as ``ConnectionSet.retire``."""

    async def stop(self, grace_secs: float) -> int:
        """Drain, cut and abort, as ``ConnectionSet.drain``. Answers meanwhile have ``Connection: close``."""


def declined(settings: Settings, status: int, text: str, peer: str, size: int) -> HttpAnswer:
    """The answer to ``size`` bytes of ``peer`` that are no request; the access log gets a record of them."""
    error = InferenceError(ErrorCode.MALFORMED, text)
    settings.load.record(RefusedRequest("http", "", peer, status, error, size))
    return text_answer(status, text)


def within(limit: int | None, request: HttpRequest, answer: HttpAnswer, handler: HttpHandler) -> HttpAnswer:
    """``answer``, or a refusal if it is longer than ``limit`` and not a stream."""
    rest = answer.rest
    size = answer.size if rest is None else answer.size + rest.length
    if limit is None or size <= limit:
        return answer
    if rest is not None:
        rest.close()
    return handler.refuse(request, _too_large("answer", size, "max_response_bytes", limit))


def request_too_large(limit: int | None, size: int) -> InferenceError:
    """The error for a request body of ``size`` bytes."""
    return _too_large("request body", size, "max_request_bytes", limit)


def stalled(secs: float) -> InferenceError:
    """The error for a request body that stops arriving."""
    return InferenceError(
        ErrorCode.DEADLINE_EXCEEDED, f"no byte of the request body arrived for {secs:g} seconds"
    )


def slow_body(rate: int) -> InferenceError:
    """The error for a request body that arrives too slowly."""
    return InferenceError(
        ErrorCode.DEADLINE_EXCEEDED,
        f"the request body arrives at fewer than {rate} bytes per second, the min_bytes_per_sec of this "
        "listener",
    )


def broken_body(fault: BodyError | MemoryError) -> InferenceError:
    """The error for a request body that is not read on."""
    if isinstance(fault, MemoryError):
        return InferenceError(ErrorCode.OVERLOADED, "no memory for the request body")
    return small_chunks() if isinstance(fault, SmallChunksError) else badly_framed()


def badly_framed() -> InferenceError:
    """The error for a malformed chunked body."""
    return InferenceError(ErrorCode.MALFORMED, "the request body is not framed as HTTP")


def small_chunks() -> InferenceError:
    """The error for a chunked body in pieces that cost more than they carry."""
    return InferenceError(
        ErrorCode.MALFORMED,
        f"the request body has more than {SMALL_CHUNKS_PER_SEC} chunks per second of less than "
        f"{SMALL_CHUNK_BYTES} bytes",
    )


def _too_large(what: str, size: int, key: str, limit: int | None) -> InferenceError:
    return InferenceError(
        ErrorCode.TOO_LARGE,
        f"the {what} has {size} bytes, more than the {limit} that {key} of this listener allows",
    )
