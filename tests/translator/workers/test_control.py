"""Messages with descriptors between two processes, here two ends on one event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from interlingua.translator.workers.control import ControlChannel, ControlLostError
from tests.waiting import until


class Ends:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.received: list[tuple[str, Any, list[int]]] = []
        self.lost = asyncio.Event()
        self.silent = False
        self.here = ControlChannel(ours, lambda *_: None, self.lost.set)
        self.there = ControlChannel(theirs, self._receive, lambda: None)

    def _receive(self, kind: str, value: Any, descriptors: list[int], reply: Any) -> None:
        self.received.append((kind, value, descriptors))
        if not self.silent:
            reply((kind, value))

    async def until(self, count: int) -> None:
        await until(lambda: len(self.received) >= count)


async def test_messages_of_any_size_arrive_in_order() -> None:
    ends = Ends()
    sizes = [0, 1, 100_000, 5_000_000, 3]
    for size in sizes:
        ends.here.send("data", b"x" * size)
    await ends.until(len(sizes))
    assert [len(value) for _, value, _ in ends.received] == sizes
    ends.here.close()
    ends.there.close()


async def test_descriptors_arrive_with_their_message_and_are_closed_here() -> None:
    ends = Ends()
    pipes = [os.pipe() for _ in range(20)]
    for number, (read, write) in enumerate(pipes):
        ends.here.send("pipe", number, [read])
        os.close(write) if number % 2 else os.write(write, b"%d" % number)
    await ends.until(20)
    for kind, number, (read,) in ends.received:
        assert kind == "pipe"
        assert os.read(read, 9) == (b"" if number % 2 else b"%d" % number)
        os.close(read)
        if not number % 2:
            os.close(pipes[number][1])
    ends.here.close()
    ends.there.close()


async def test_requests_get_their_own_replies() -> None:
    ends = Ends()
    found = await asyncio.gather(*(ends.here.request("ask", number) for number in range(50)))
    assert found == [("ask", number) for number in range(50)]
    ends.there.close()
    await asyncio.wait_for(ends.lost.wait(), 30)
    with pytest.raises(ControlLostError):
        await ends.here.request("ask")
    # dropped, its descriptor closed
    read, write = os.pipe()
    ends.here.send("late", None, [read])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
    os.close(write)


async def test_requests_in_flight_fail_when_the_other_end_is_lost() -> None:
    ends = Ends()
    ends.silent = True
    asking = asyncio.create_task(ends.here.request("ask"))
    await ends.until(1)
    ends.there.close()
    with pytest.raises(ControlLostError):
        await asking
