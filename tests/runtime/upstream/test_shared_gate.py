"""One limit of several gates, as of several processes, here on one event loop."""

from __future__ import annotations

import asyncio
import mmap
import os
import time

import pytest

from interlingua.protocols.shared_counts import SharedCounts, page_bytes
from interlingua.runtime.upstream.pool.gate import Gate
from interlingua.runtime.upstream.pool.shared_gate import COLUMNS, Doorbells, SharedGate
from interlingua.schemas import ErrorCode, InferenceError

ROWS = 3


class Gates:
    """``gates`` with common limits, and the ``counts`` of their owner."""

    def __init__(self, most: int | None, most_bytes: int | None, wait_secs: float = 20.0) -> None:
        page = mmap.mmap(-1, page_bytes(ROWS, COLUMNS, 0))
        self.counts = [SharedCounts(page, row, ROWS, COLUMNS, 0) for row in range(ROWS)]
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(ROWS)]
        self.gates = []
        for row, counts in enumerate(self.counts):
            gate = Gate(most, most_bytes, wait_secs)
            bells = Doorbells(self.bells, row)
            asyncio.get_running_loop().add_reader(bells.own, bells.answer)
            gate.share(SharedGate(*map(counts.count, range(COLUMNS)), bells))
            self.gates.append(gate)
        self.inside: list[int] = []
        self.most = self.most_bytes = 0

    async def request(self, row: int, nbytes: int = 1, secs: float = 0.0) -> None:
        async with self.gates[row].passing("up", nbytes, None):
            self.inside.append(nbytes)
            self.most = max(self.most, len(self.inside))
            self.most_bytes = max(self.most_bytes, sum(self.inside))
            await asyncio.sleep(secs)
            self.inside.remove(nbytes)

    def close(self) -> None:
        for bell in self.bells:
            asyncio.get_running_loop().remove_reader(bell)
            os.close(bell)


async def test_requests_hold_in_all_gates_and_every_one_has_its_turn() -> None:
    gates = Gates(4, None)
    await asyncio.gather(*(gates.request(number % ROWS, secs=0.001) for number in range(300)))
    assert gates.most == 4
    assert [each.running for each in gates.gates] == [0] * ROWS
    gates.close()


async def test_bytes_hold_in_all_gates_and_a_larger_request_passes_alone() -> None:
    gates = Gates(None, 100)
    sizes = [30, 60, 500, 90, 10] * 12
    await asyncio.gather(*(gates.request(at % ROWS, size, 0.001) for at, size in enumerate(sizes)))
    assert gates.most_bytes == 500
    assert not gates.inside
    gates.close()


async def test_the_oldest_goes_first_wherever_it_waits() -> None:
    gates = Gates(1, None)
    order: list[int] = []

    async def request(row: int, number: int) -> None:
        async with gates.gates[row].passing("up", 1, None):
            order.append(number)
            await asyncio.sleep(0.002)

    tasks = []
    for number in range(12):
        # one process has most of them
        tasks.append(asyncio.create_task(request(0 if number % 4 else 1, number)))
        await asyncio.sleep(0.0005)
    await asyncio.gather(*tasks)
    assert sorted(order) == list(range(12))
    # others get in between, not after all
    assert order.index(8) < 11
    gates.close()


async def test_the_words_of_a_refusal_count_all_processes() -> None:
    gates = Gates(2, None, 0.05)
    holders = [asyncio.create_task(gates.request(row, secs=60)) for row in (0, 1)]
    await asyncio.sleep(0)
    with pytest.raises(InferenceError) as raised:
        await gates.request(2)
    assert raised.value.code is ErrorCode.OVERLOADED
    assert "max_concurrency 2 allows: 2 requests of 2 bytes" in raised.value.message
    for each in holders:
        each.cancel()
    await asyncio.gather(*holders, return_exceptions=True)
    await gates.request(2)
    gates.close()


async def test_a_process_that_exits_leaves_its_places() -> None:
    gates = Gates(1, None)
    holder = asyncio.create_task(gates.request(0, secs=60))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(gates.request(1))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    gates.counts[2].clear(0)
    async with asyncio.timeout(30):
        await waiting
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)
    gates.close()


async def test_a_stopped_process_that_waits_keeps_no_place_empty() -> None:
    gates = Gates(1, None)
    # as of a process that is stopped: it waits, and will not take its turn
    gates.counts[2].count(2).set(time.monotonic_ns())
    began = time.monotonic()
    await asyncio.gather(*(gates.request(number % 2) for number in range(4)))
    assert time.monotonic() - began < 15
    gates.close()
