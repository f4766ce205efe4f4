"""Reads a stream that is compared with a known answer. It may never end, so reading is bounded."""

from __future__ import annotations

from interlingua.runtime.models.kept import kept
from interlingua.runtime.target import Target
from interlingua.schemas import InferRequest, InferResponse
from interlingua.translator.recording.record import RecordedAnswer

_SURPLUS = 16
"""How many surplus responses to read; more would add nothing to the comparison."""


async def listen(
    target: Target, request: InferRequest, expected: RecordedAnswer, responses: list[InferResponse]
) -> None:
    """Append the responses of a stream to ``responses``: up to ``_SURPLUS`` more than ``expected`` has, none
    more if that was cut. Raises the ``InferenceError`` that ends the stream."""
    most = len(expected.responses) + (0 if expected.cut else _SURPLUS)
    stream = target.stream(request)
    try:
        async for response in stream:
            responses.append(owned(response))
            if len(responses) >= most:
                return
    finally:
        # closing cancels it; a plain iterator has no aclose
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()


def owned(response: InferResponse) -> InferResponse:
    """``response`` with outputs that stay valid during the comparison."""
    response.outputs = kept(response.outputs)
    return response
