"""Hears a stream that is asked for again, to be held against an answer that is known.

Such a stream may have no end. More than shows how it differs is not heard.
"""

from __future__ import annotations

from interlingua.runtime.models.kept import kept
from interlingua.runtime.target import Target
from interlingua.schemas import InferRequest, InferResponse
from interlingua.translator.recording.record import Answer

_SURPLUS = 16
"""How many responses too many are listened to: more would say nothing new."""


async def listen(
    target: Target, request: InferRequest, expected: Answer, responses: list[InferResponse]
) -> None:
    """Add to ``responses`` those of a stream, of which there should be as many as are ``expected``; of one
    that was cut no more than that. Raises ``InferenceError`` where the stream ends so."""
    most = len(expected.responses) + (0 if expected.cut else _SURPLUS)
    stream = target.stream(request)
    try:
        async for response in stream:
            responses.append(owned(response))
            if len(responses) >= most:
                return
    finally:
        # to close it is to cancel it; an iterator that is no generator has nothing to close
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()


def owned(response: InferResponse) -> InferResponse:
    """``response`` with outputs that stay as they are while they are compared."""
    response.outputs = kept(response.outputs)
    return response
