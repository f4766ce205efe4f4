"""Repeats a recorded request. Streams may never end, so reading is bounded."""

from __future__ import annotations

from interlingua.runtime.models.kept import kept
from interlingua.runtime.target import Target
from interlingua.schemas import InferRequest, InferResponse
from interlingua.translator.recording.record import Record

_SURPLUS = 16
"""How many surplus responses to read; more would add nothing to the comparison."""


async def repeat(
    target: Target, request: InferRequest, record: Record, responses: list[InferResponse]
) -> None:
    """Append the responses to ``request`` to ``responses``. Of a stream up to ``_SURPLUS`` more than
    ``record`` has, none more if it was cut. Raises the ``InferenceError`` that replaces or ends them."""
    if not record.streamed:
        responses.append(_owned(await target.infer(request)))
        return
    most = len(record.answer.responses) + (0 if record.answer.cut else _SURPLUS)
    stream = target.stream(request)
    try:
        async for response in stream:
            responses.append(_owned(response))
            if len(responses) >= most:
                return
    finally:
        # closing cancels it; a plain iterator has no aclose
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()


def _owned(response: InferResponse) -> InferResponse:
    """``response`` with outputs that stay valid during the comparison."""
    response.outputs = kept(response.outputs)
    return response
