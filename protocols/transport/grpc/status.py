"""Numbers of gRPC's statuses, and those that both engines of a listener send by themselves."""

from __future__ import annotations

import logging

from interlingua.protocols.wire import GrpcAnswer

LARGEST_MESSAGE = 2**31 - 1

CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, PERMISSION_DENIED = 1, 2, 4, 7
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 8, 12, 13, 14, 16
"""Numbers of gRPC's statuses."""

_DETAILS_BYTES = 4096
"""The longest details on the wire. From 8 KiB of trailers on, grpcio's clients may replace the status by one
of their own, and from 16 KiB they do, so that even its code is lost."""

_log = logging.getLogger(__name__)


def cut(details: str) -> str:
    """``details``, truncated if it is too long to be sent."""
    left = _DETAILS_BYTES
    if 3 * len(details) <= left and details.isascii():
        return details
    for index, character in enumerate(details):
        # other than printable ASCII is percent-encoded, byte by byte
        plain = " " <= character <= "~" and character != "%"
        left -= 1 if plain else 3 * len(character.encode(errors="replace"))
        if left < 0:
            return f"{details[:index]}..."
    return details


def unforeseen(method: str) -> GrpcAnswer:
    """The answer if a handler raises, which it must not: the log has the details, the client gets none."""
    _log.exception("unexpected error", extra={"facts": {"method": method}})
    return GrpcAnswer(code=INTERNAL, details="internal error; the server's log has the details")


def body_stalled(secs: float) -> GrpcAnswer:
    """The answer to a call whose message stops arriving."""
    return GrpcAnswer(
        code=DEADLINE_EXCEEDED, details=f"no byte of the request body arrived for {secs:g} seconds"
    )


def body_slow(rate: int) -> GrpcAnswer:
    """The answer to a call whose message arrives too slowly."""
    return GrpcAnswer(
        code=DEADLINE_EXCEEDED,
        details=f"the request body arrives at fewer than {rate} bytes per second, the min_bytes_per_sec of "
        "this listener",
    )


def too_large(what: str, size: int, key: str, limit: int) -> GrpcAnswer:
    """The answer in place of a message that is longer than the listener allows."""
    return GrpcAnswer(
        code=RESOURCE_EXHAUSTED,
        details=f"the {what} has {size} bytes, more than the {limit} that {key} of this listener allows",
    )


def fitting(answer: GrpcAnswer, limit: int | None) -> GrpcAnswer:
    """The answer, or a refusal to send one that large."""
    if limit is None or (size := answer.size) <= limit:
        return answer
    return too_large("answer", size, "max_response_bytes", limit)
