"""The span of one attempt at a server of an upstream, for requests that are sampled.

Each attempt has a span of its own, which is the parent of what that server records.
"""

from __future__ import annotations

import time
from typing import Any

from interlingua.protocols.span_attributes import of_answer, of_message, of_peer
from interlingua.schemas import InferenceError
from interlingua.schemas.trace import Span, Trace


def begin(trace: Trace, message: Any, upstream: str, url: str, retries: int) -> Span:
    """The span for ``message`` to the server at ``url``, after so many other attempts. The message gets its
    ``traceparent``."""
    name, attributes = of_message(message)
    now = time.monotonic_ns()
    span = trace.child(name, now, now, "client")
    span.attributes = {**attributes, **of_peer(url), "interlingua.upstream": upstream}
    if retries:
        span.attributes["http.request.resend_count"] = retries
    message.add_headers({"traceparent": trace.header(span.span_id)})
    return span


def answered(span: Span, reply: Any) -> None:
    span.attributes |= of_answer(reply)


def end(trace: Trace, span: Span, error: BaseException | None) -> None:
    """The attempt is over, now."""
    span.ended_ns = time.monotonic_ns() + trace.offset_ns
    if error is not None and not isinstance(error, GeneratorExit):
        span.error, span.attributes["error.type"] = described(error)


def described(error: BaseException) -> tuple[str, str]:
    """The text and the type of ``error``."""
    if isinstance(error, InferenceError):
        return error.message, error.code.name
    return repr(error) if isinstance(error, Exception) else "cancelled", type(error).__name__
