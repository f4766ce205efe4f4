"""One fetch for all who want its value."""

from __future__ import annotations

import asyncio

import pytest

from interlingua.runtime.upstream.shared_value import SharedValue


class Source:
    """Counts what is fetched, and holds each fetch until it is let go."""

    def __init__(self) -> None:
        self.begun = self.ended = self.cancelled = 0
        self.open = asyncio.Event()
        self.fails = False

    async def fetch(self) -> int:
        self.begun += 1
        number = self.begun
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise ValueError(f"fetch {number}")
        self.ended += 1
        return number


async def test_one_fetch_for_all_who_wait_and_all_who_come_soon() -> None:
    source, value = Source(), SharedValue[int](60)
    waiting = [asyncio.create_task(value.get(source.fetch)) for _ in range(5)]
    await asyncio.sleep(0)
    source.open.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    assert await value.get(source.fetch) == 1
    assert source.begun == 1


async def test_a_value_is_fetched_again_when_its_time_is_over() -> None:
    source, value = Source(), SharedValue[int](0)
    source.open.set()
    assert [await value.get(source.fetch) for _ in range(3)] == [1, 2, 3]


async def test_a_failure_serves_those_who_wait_alone() -> None:
    source, value = Source(), SharedValue[int](60)
    source.fails = True
    waiting = [asyncio.create_task(value.get(source.fetch)) for _ in range(3)]
    await asyncio.sleep(0)
    source.open.set()
    for ended in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(ended, ValueError) and str(ended) == "fetch 1"
    source.fails = False
    assert await value.get(source.fetch) == 2


async def test_who_goes_leaves_the_fetch_to_the_others() -> None:
    source, value = Source(), SharedValue[int](60)
    first, second = (asyncio.create_task(value.get(source.fetch)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    source.open.set()
    assert await second == 1
    assert (source.begun, source.cancelled) == (1, 0)


async def test_a_fetch_without_waiters_is_cancelled() -> None:
    source, value = Source(), SharedValue[int](60)
    alone = asyncio.create_task(value.get(source.fetch))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    source.open.set()
    assert await value.get(source.fetch) == 2
    assert source.cancelled == 1
