"""One answer of a model that may give any number: the only one that it gives.

A caller that cannot take a stream may still call such a model where its dialect has one call for every
model. More than one answer does not fit into one, so that is refused, and the model is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from interlingua.schemas import ErrorCode, InferenceError, InferResponse


async def only_answer(responses: AsyncGenerator[InferResponse, None], model: str) -> InferResponse:
    """The only response of ``responses`` that says something, or an empty one where none does.

    Raises as they do, the error of a response too, and UNSUPPORTED for a second one.
    """
    only: InferResponse | None = None
    empty: InferResponse | None = None
    async with aclosing(responses) as answers:
        async for response in answers:
            if response.error is not None:
                raise response.error
            if not response.outputs:
                empty = response
            elif only is None:
                only = response
            else:
                raise InferenceError(
                    ErrorCode.UNSUPPORTED,
                    f"model '{model}' gives more than one answer to this request: ask it for a stream",
                )
    found = only or empty
    assert found is not None, "a stream has at least its end"  # noqa: S101
    return replace(found, final=True)
