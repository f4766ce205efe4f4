"""How many messages of a stream are at work at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from interlingua.translator.serving.interleave import StreamItem, interleave


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@pytest.mark.parametrize(("small", "seen"), [(True, 10), (False, 2)])
async def test_small_messages_have_a_larger_window(small: bool, seen: int) -> None:
    """The first message waits for the last one, as a sequence that waits for the end of another."""
    begun: list[int] = []
    last = asyncio.Event()

    async def work(number: int) -> AsyncGenerator[StreamItem[int], None]:
        begun.append(number)
        if number == 9:
            last.set()
        await last.wait()
        yield number, True

    answers = interleave(numbers(10), work, 2, 20, lambda number: small)
    asking = asyncio.ensure_future(anext(answers))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(begun) == seen
    last.set()
    assert [await asking, *[answer async for answer in answers]] == list(range(10))
