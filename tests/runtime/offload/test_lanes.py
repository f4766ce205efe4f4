"""Clients that wait for an offload thread take turns."""

from __future__ import annotations

import asyncio

import pytest

from interlingua.runtime.offload.lanes import Lanes
from interlingua.runtime.offload.pool import client_address
from interlingua.schemas import ErrorCode, InferenceError


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_client_with_many_messages_does_not_delay_another() -> None:
    lanes, served = Lanes(1), []

    async def work(client: str) -> None:
        await lanes.enter(client)
        served.append(client)
        await turns(1)
        lanes.leave()

    hog = [asyncio.create_task(work("hog")) for _ in range(50)]
    await turns()
    began = len(served)
    others = [asyncio.create_task(work(name)) for name in ("one", "two", "one")]
    await asyncio.gather(*others)
    # one of the hog's between any two of the others, and the one that had the place
    assert served[began:].index("one") <= 2 and served[began:].index("two") <= 3
    assert served.count("hog") <= began + 6
    await asyncio.gather(*hog)
    assert len(served) == 53 and not lanes.waiting and not lanes._lanes and lanes._free == 1


async def test_the_queue_is_bounded() -> None:
    lanes = Lanes(1, of_client=2, waiting=3)
    await lanes.enter("hog")
    waiting = [asyncio.create_task(lanes.enter(client)) for client in ("hog", "hog", "one")]
    await turns()
    for client, text in (("two", "3 long messages of clients"), ("hog", "long messages of")):
        with pytest.raises(InferenceError, match=f"{text}.* wait to be decoded; try again") as refused:
            await lanes.enter(client)
        assert refused.value.code is ErrorCode.OVERLOADED
    lanes.leave()
    await waiting[0]
    lanes.leave()
    await waiting[2]  # it was the turn of the other
    waiting.append(asyncio.create_task(lanes.enter("hog")))
    await turns()
    with pytest.raises(InferenceError, match="^2 long messages of this client"):
        await lanes.enter("hog")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not lanes.waiting and not lanes._lanes


async def test_callers_that_go_away_give_back_their_turn() -> None:
    lanes = Lanes(1)
    await lanes.enter("a")
    first, second = (asyncio.create_task(lanes.enter(client)) for client in ("a", "b"))
    await turns()
    lanes.leave()
    first.cancel()  # it has got the place, and does not know it yet
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.wait_for(second, 30)
    third = asyncio.create_task(lanes.enter("c"))
    await turns()
    third.cancel()
    lanes.leave()
    await asyncio.gather(third, return_exceptions=True)
    assert lanes._free == 1 and not lanes.waiting and not lanes._lanes


def test_connections_of_one_address_share_a_lane() -> None:
    peers = ("ipv4:10.0.0.1:80", "ipv6:%5B::1%5D:80", "10.0.0.1", "unix:", "")
    assert [client_address(peer) for peer in peers] == [
        "ipv4:10.0.0.1",
        "ipv6:%5B::1%5D",
        "10.0.0.1",
        "unix:",
        "",
    ]
