"""The message of a wire value, apart from the rest of that: from here on, its shell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from interlingua.protocols.protobuf_wire import in_parts
from interlingua.protocols.templates import place_in
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    Buffer,
    FramedAnswer,
    FramedCall,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpCall,
    HttpReply,
)

Received = HttpReply | GrpcAnswer | BrpcAnswer


def message_of(reply: Received) -> Buffer:
    """The message of a ``plain`` reply."""
    return reply.body if isinstance(reply, HttpReply) else reply.message


def reply_with(reply: Received, message: Buffer) -> Received:
    """``reply`` with another message."""
    if isinstance(reply, HttpReply):
        return replace(reply, body=message)
    return replace(reply, message=message)


def whole_of(sent: Any) -> bytes | None:
    """The message of a call or an answer, in one piece; None for a streamed one, and over other
    transports."""
    if isinstance(sent, GrpcRequest | GrpcAnswer):
        return bytes(sent.whole)
    if isinstance(sent, BrpcRequest | BrpcAnswer):
        return bytes(sent.message)
    if not isinstance(sent, HttpCall | HttpAnswer) or sent.rest is not None:
        return None
    return None if isinstance(sent.parts, AsyncIterator) else b"".join(sent.parts)


def shell_of(sent: Any) -> object:
    """What a call or an answer has besides its message and its context."""
    if isinstance(sent, GrpcRequest):
        return sent.method, sent.metadata
    if isinstance(sent, GrpcAnswer):
        return sent.code, sent.details, sent.trailing
    if isinstance(sent, BrpcAnswer):
        return sent.code, sent.text, sent.headers
    if isinstance(sent, BrpcRequest):
        return sent.service, sent.method, sent.compression, sent.size, sent.headers
    if isinstance(sent, HttpCall):
        return sent.method, sent.path, sent.query, sent.headers, sent.repeatable, sent.prefix
    return (sent.status, sent.headers) if isinstance(sent, HttpAnswer) else None


def is_whole(sent: Any, message: Buffer) -> bool:
    """Whether the message of a call or an answer is ``message``, uncopied."""
    parts = (*getattr(sent, "parts", ()),)
    if not isinstance(sent, HttpCall | HttpAnswer | FramedCall | FramedAnswer):
        parts = (sent.message, *parts)
    return len(parts) == 1 and len(parts[0]) == len(message) and place_in(message, parts[0]) is not None


def without_message(call: Any) -> Any:
    """A copy of ``call`` that keeps no message alive."""
    if isinstance(call, HttpCall):
        return replace(call, parts=())
    if isinstance(call, GrpcRequest):
        call = replace(call, parts=())
    return replace(call, message=b"")


def answer_with(
    answer: HttpAnswer | GrpcAnswer | BrpcAnswer, message: Buffer
) -> HttpAnswer | GrpcAnswer | BrpcAnswer:
    """A new answer like ``answer`` with another message."""
    if isinstance(answer, HttpAnswer):
        return HttpAnswer(answer.status, answer.headers, (message,))
    if isinstance(answer, GrpcAnswer):
        return GrpcAnswer(message, 0, "", answer.trailing)
    return BrpcAnswer(message, 0, "", answer.headers)


def answer_in_parts(
    answer: HttpAnswer | GrpcAnswer | BrpcAnswer, parts: list[Buffer]
) -> HttpAnswer | GrpcAnswer | BrpcAnswer:
    """A new answer like ``answer`` with the message in ``parts``. Large parts are not copied."""
    if isinstance(answer, HttpAnswer):
        return HttpAnswer(answer.status, answer.headers, parts)
    if isinstance(answer, GrpcAnswer):
        message, rest = in_parts(parts)
        return GrpcAnswer(message, 0, "", answer.trailing, rest)
    return BrpcAnswer(b"".join(parts), 0, "", answer.headers)
