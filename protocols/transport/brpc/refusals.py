"""Answers of the transport itself to a call, with the numbers and texts of the original."""

from __future__ import annotations

import asyncio

from interlingua.protocols.brpc_status import ERROR_CODES, BrpcStatus, disguised
from interlingua.protocols.transport.brpc.frame import Meta
from interlingua.protocols.transport.load import RefusedRequest
from interlingua.protocols.wire import BrpcAnswer
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.bounded_text import shortened

STOPPING = BrpcAnswer(code=BrpcStatus.ELOGOFF, text="Server is stopping")

FAULT = BrpcAnswer(code=BrpcStatus.EINTERNAL, text="internal error; the server's log has the details")


def full(limit: int) -> str:
    """The text for a call above ``limit`` calls at work."""
    return f"Reached server's max_concurrency={limit}"


def overloaded(text: str) -> BrpcAnswer:
    """The answer to a call above a limit."""
    return BrpcAnswer(code=BrpcStatus.ELIMIT, text=text)


def unknown(service: str, method: str, known: bool) -> BrpcAnswer:
    """The answer to a call of a method that no dialect offers; ``known``: its service has others."""
    if known or "." in service:
        text = f"Fail to find method={shortened(service)}/{shortened(method)}"
        return BrpcAnswer(code=BrpcStatus.ENOMETHOD, text=text)
    return BrpcAnswer(code=BrpcStatus.ENOSERVICE, text=f"Fail to find service={shortened(service)}")


def too_long(answer: BrpcAnswer, limit: int) -> BrpcAnswer:
    """What is sent instead of ``answer``, whose message has more than ``limit`` bytes."""
    size = len(answer.message)
    text = (
        f"the answer has {size} bytes, more than the {limit} that max_response_bytes of this listener allows"
    )
    return BrpcAnswer(code=BrpcStatus.ERESPONSE, text=text)


def recorded(meta: Meta, peer: str, size: int, answer: BrpcAnswer) -> RefusedRequest:
    """The record of a call by ``peer``, with ``size`` bytes, which ``answer`` refuses."""
    error = InferenceError(ERROR_CODES.get(answer.code, ErrorCode.INTERNAL), answer.text)
    name = f"{meta.service or ''}/{meta.method}"
    return RefusedRequest("brpc", name, peer, answer.code, error, size)


def sender(transport: asyncio.BaseTransport) -> str:
    """Who refuses: the address of this end, as the original has it in texts."""
    at = transport.get_extra_info("sockname")
    return disguised(f"{at[0]}:{at[1]}" if isinstance(at, tuple) else str(at))
