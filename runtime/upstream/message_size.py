"""The size of the messages of an upstream, for its limits and for copies."""

from __future__ import annotations

from typing import Any

from interlingua.protocols.wire import FramedCall, HttpCall, HttpReply


def nbytes_of(message: Any) -> int:
    """The bytes of a call, or of a reply."""
    if isinstance(message, HttpCall) and message.rest is not None and message.length is not None:
        return message.length
    if isinstance(message, HttpCall | FramedCall):
        return sum(memoryview(part).nbytes for part in message.parts)
    nbytes = memoryview(message.body if isinstance(message, HttpReply) else message.message).nbytes
    return nbytes + sum(memoryview(part).nbytes for part in getattr(message, "parts", ()))
