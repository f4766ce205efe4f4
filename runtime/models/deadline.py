"""The deadline of a request to a local model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.schemas import Context, ErrorCode, InferenceError


def seconds_left(model: str, context: Context) -> float | None:
    """How many seconds the caller of ``model`` still waits; None without a deadline. Raises CANCELLED and
    DEADLINE_EXCEEDED."""
    if context.cancel.cancelled:
        raise cancelled(model)
    if context.deadline is None:
        return None
    left = context.deadline - time.monotonic()
    if left <= 0:
        raise too_late(model)
    return left


async def next_answer(answers: AsyncIterator[InstanceAnswer], model: str, context: Context) -> InstanceAnswer:
    """The next of ``answers`` of ``model``. Raises as :func:`seconds_left`, and the errors of ``answers``."""
    left = seconds_left(model, context)
    if left is None:
        return await anext(answers)
    try:
        async with asyncio.timeout(left):
            return await anext(answers)
    except TimeoutError:
        raise too_late(model) from None


def cancelled(model: str) -> InferenceError:
    return InferenceError(ErrorCode.CANCELLED, f"request to model '{model}' was cancelled")


def too_late(model: str) -> InferenceError:
    return InferenceError(ErrorCode.DEADLINE_EXCEEDED, f"model '{model}' did not answer before the deadline")
