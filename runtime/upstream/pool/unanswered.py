"""Calls that not every server of a dialect answers: GraphPipe's for metadata, which is also its probe.

Contract: a reachable server that has never answered such a call may not have it. That is not a failure, and
the server does not get the call again for a while. A server that has answered it must keep answering, unless
it answers requests and not this.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.wire import ConnectionFailedError
from interlingua.runtime.upstream.pool.member import Member
from interlingua.schemas import ErrorCode, InferenceError, Readiness

PATIENCE_SECS = 2.0
"""The timeout of a call that the caller does not need."""

_ADVICE = "some servers do not describe their model: declare its signature"

_SILENT = "the upstream does not answer this"

Send = Callable[[Any, Any], Awaitable[Any]]
"""Sends a message with a client and returns the reply. Raises ``InferenceError``."""


class UnansweredError(InferenceError):
    """The server is reachable, and does not answer this call."""


async def request(
    member: Member,
    call: UpstreamCall[Any, Any],
    message: Any,
    form: Any,
    send: Send,
    *,
    dispensable: bool,
    label: str = "",
) -> Any:
    """The result of an optional ``call``. ``dispensable``: the caller does not need it, so a server that is
    known not to answer is only connected to. Raises ``UnansweredError``, and the errors of ``send`` and
    ``call.decode``; ``label`` begins errors of this module."""
    if dispensable and not member.answers_optional:
        if member.mute and not member.open:
            if reason := await member.unreachable():
                words = f"{label}the upstream at {member.url} cannot be reached: {reason}"
                raise ConnectionFailedError(ErrorCode.UNAVAILABLE, words, sent=False)
            raise UnansweredError(ErrorCode.UNAVAILABLE, f"{label}{_SILENT}; {_ADVICE}")
        context = message.context
        deadline = time.monotonic() + PATIENCE_SECS
        message.context = replace(context, deadline=min(context.deadline or deadline, deadline))
    try:
        reply = await send(member.client, message)
    except InferenceError as error:
        if not await _is_silent(member, error):
            raise
        held = member.answers_optional
        member.falls_silent(error.message)
        if held:
            raise
        raise UnansweredError(error.code, f"{error.message}; {_ADVICE}") from error
    if call.optional is not None and call.optional(reply) and not member.answers_optional:
        words = _words(call, form, reply)
        member.falls_silent(words)
        raise UnansweredError(ErrorCode.UNSUPPORTED, f"{label}{words}; {_ADVICE}")
    result = call.decode(form, reply)
    if not isinstance(result, Readiness) or result.ready:
        member.has_answered()
    return result


async def _is_silent(member: Member, error: InferenceError) -> bool:
    """Whether ``error`` is that of a reachable server without such a call: it closes the connection, or does
    nothing."""
    if isinstance(error, ConnectionFailedError):
        return error.sent and error.code is ErrorCode.UNAVAILABLE
    return error.code is ErrorCode.DEADLINE_EXCEEDED and not await member.unreachable()


def _words(call: UpstreamCall[Any, Any], form: Any, reply: Any) -> str:
    """The message of a reply that is not an answer."""
    try:
        result = call.decode(form, reply)
    except InferenceError as error:
        return error.message
    return result.reason if isinstance(result, Readiness) else _SILENT
