"""Who asks for the same thing gets it in turn."""

from __future__ import annotations

import asyncio
import time

import pytest

from interlingua.runtime.models.turns import Turns
from interlingua.schemas import Context, ErrorCode, InferenceError


async def test_turns_come_in_the_order_of_asking_and_do_not_overlap() -> None:
    turns, seen = Turns(), []

    async def take(key: str, number: int) -> None:
        async with turns.of(key):
            seen.append((key, number, "begins"))
            await asyncio.sleep(0)
            seen.append((key, number, "ends"))

    await asyncio.gather(*(take("a", number) for number in range(5)))
    assert seen == [("a", number, word) for number in range(5) for word in ("begins", "ends")]


async def test_another_key_does_not_wait() -> None:
    turns = Turns()
    async with turns.of("a"), asyncio.timeout(30), turns.of("b"):
        pass


async def test_a_failed_or_cancelled_request_passes_the_turn_on() -> None:
    turns, done = Turns(), []

    async def take(number: int) -> None:
        async with turns.of("a"):
            await asyncio.sleep(0)
            if number == 0:
                raise ValueError
            done.append(number)

    tasks = [asyncio.ensure_future(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    with pytest.raises(ValueError):
        await tasks[0]
    await tasks[2]
    assert done == [2] and tasks[1].cancelled()


async def test_a_turn_comes_before_the_deadline_or_not_at_all() -> None:
    turns, done = Turns(), []

    async def take(context: Context) -> None:
        async with turns.of("a", "m", context):
            done.append(context)

    async with turns.of("a"):
        with pytest.raises(InferenceError, match="model 'm' did not answer before the deadline") as caught:
            await take(Context(deadline=time.monotonic() + 0.02))
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED and caught.value.begun is False
        patient = asyncio.ensure_future(take(Context(deadline=time.monotonic() + 60)))
        await asyncio.sleep(0)
    await patient
    assert len(done) == 1 and not vars(turns)["_locks"]


async def test_nothing_is_kept() -> None:
    turns = Turns()
    for number in range(3):
        async with turns.of(number):
            pass
    assert not vars(turns)["_locks"] and not vars(turns)["_users"]
