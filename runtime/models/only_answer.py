"""The only answer of a model that may answer any number of times.

A caller that cannot take a stream may call such a model if its dialect has one call for all models. A second
answer is refused, and the model cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from interlingua.schemas import InferResponse, unsupported


async def only_answer(responses: AsyncGenerator[InferResponse, None], model: str) -> InferResponse:
    """The only response of ``responses`` with outputs, or an empty one. Raises their errors, the error of a
    response too, and UNSUPPORTED for a second one."""
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
                raise unsupported(
                    f"model '{model}' gives more than one answer to this request: call it as a stream"
                )
    found = only or empty
    assert found is not None, "a stream has at least its end"  # noqa: S101
    return replace(found, final=True)
