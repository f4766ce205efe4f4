"""What both engines of a gRPC listener say by themselves, and how much of it is sent."""

from __future__ import annotations

import logging

from interlingua.protocols.wire import GrpcAnswer

LARGEST_MESSAGE = 2**31 - 1

CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 1, 4, 8, 12, 13, 14
"""Numbers of gRPC's statuses."""

KEEPALIVE_SECS, KEEPALIVE_TIMEOUT_SECS = 7200.0, 20.0
"""After how long without a byte a client is asked for a sign of life, and how long it may take. Triton's:
clients are tuned to them."""

_DETAILS_BYTES = 4096
"""How long the words of a status may get on the wire. From 8 KiB of trailers on grpcio's clients may, and
from 16 KiB they do, replace the status by one of their own, so that even its code is lost."""

_log = logging.getLogger(__name__)


def cut(details: str) -> str:
    """``details``, its end left out where it is too long to be sent."""
    room = _DETAILS_BYTES
    if 3 * len(details) <= room and details.isascii():
        return details
    for index, character in enumerate(details):
        # what is not printable ASCII travels percent-encoded, byte by byte
        plain = " " <= character <= "~" and character != "%"
        room -= 1 if plain else 3 * len(character.encode(errors="replace"))
        if room < 0:
            return f"{details[:index]}..."
    return details


def unforeseen(method: str) -> GrpcAnswer:
    """The answer for a handler that broke its promise: logged whole, told without internals."""
    _log.exception("unexpected error", extra={"facts": {"method": method}})
    return GrpcAnswer(code=INTERNAL, details="internal error; the server's log has the details")


def too_large(what: str, size: int, key: str, limit: int) -> GrpcAnswer:
    """The answer in place of a message that is longer than the listener allows."""
    return GrpcAnswer(
        code=RESOURCE_EXHAUSTED,
        details=f"the {what} has {size} bytes, more than the {limit} that {key} of this listener allows",
    )


def fitting(answer: GrpcAnswer, limit: int | None) -> GrpcAnswer:
    """The answer, or a refusal to send one that large."""
    if limit is None or len(answer.message) <= limit:
        return answer
    return too_large("answer", len(answer.message), "max_response_bytes", limit)
