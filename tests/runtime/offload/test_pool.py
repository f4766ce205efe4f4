"""Long work in threads and processes: results, errors, cancellation, and an event loop that stays free."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from interlingua.runtime.offload.pool import OffloadPool
from interlingua.schemas import ErrorCode, InferenceError, malformed, offload
from interlingua.schemas.offload import DecodingLimits, OffloadRequired

LIMITS = DecodingLimits(max_elements=1000)


def pid() -> int:
    return os.getpid()


def doubled(view: memoryview, array: np.ndarray) -> tuple[memoryview, np.ndarray, bool]:
    return memoryview(bytes(view) * 2), array * 2, view.readonly


def refuse(message: str) -> None:
    raise malformed(message)


def crash() -> None:
    os._exit(3)


def busy(secs: float) -> float:
    end = time.monotonic() + secs
    while time.monotonic() < end:
        pass
    return secs


def limit() -> int:
    return offload.limits().max_elements


def swallow() -> int:
    return len(bytearray(64 << 30))


@pytest_asyncio.fixture
async def pool(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OffloadPool]:
    # the process imports the functions of this file
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    async with OffloadPool(1) as pool:
        yield pool


async def test_long_work_of_the_loop_s_thread_needs_a_thread(pool: OffloadPool) -> None:
    with pytest.raises(OffloadRequired) as required:
        offload.call(pid)
    assert required.value.offloader is pool
    assert await pool.run(LIMITS, offload.call, pid) not in (0, os.getpid())


async def test_without_a_pool_work_runs_here() -> None:
    assert offload.call(pid) == os.getpid()


async def test_buffers_go_both_ways(pool: OffloadPool) -> None:
    for size in (10, 1 << 20):
        body, array = os.urandom(size), np.arange(size)
        view, twice, readonly = await pool.run(LIMITS, offload.call, doubled, body, array)
        assert view == body * 2
        assert readonly
        assert np.array_equal(twice, array * 2)


async def test_the_limits_of_the_message_hold_in_thread_and_process(pool: OffloadPool) -> None:
    assert await pool.run(LIMITS, limit) == 1000
    assert await pool.run(LIMITS, offload.call, limit) == 1000


async def test_errors_of_codecs_come_back(pool: OffloadPool) -> None:
    with pytest.raises(InferenceError, match="no good") as failure:
        await pool.run(LIMITS, offload.call, refuse, "no good")
    assert failure.value.code is ErrorCode.MALFORMED


async def test_a_message_that_takes_too_much_memory_is_too_large(pool: OffloadPool) -> None:
    with pytest.raises(InferenceError, match="too much memory") as failure:
        await pool.run(LIMITS, offload.call, swallow)
    assert failure.value.code is ErrorCode.TOO_LARGE


async def test_a_process_that_exits_is_replaced(pool: OffloadPool) -> None:
    first = await pool.run(LIMITS, offload.call, pid)
    with pytest.raises(InferenceError, match="has exited") as failure:
        await pool.run(LIMITS, offload.call, crash)
    assert failure.value.code is ErrorCode.INTERNAL
    assert await pool.run(LIMITS, offload.call, pid) != first


async def test_work_for_a_caller_that_is_gone_ends(pool: OffloadPool) -> None:
    await pool.run(LIMITS, offload.call, pid)
    work = asyncio.ensure_future(pool.run(LIMITS, offload.call, busy, 60.0))
    await asyncio.sleep(0.1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    began = time.monotonic()
    assert await pool.run(LIMITS, offload.call, busy, 0.01) == 0.01
    assert time.monotonic() - began < 30


async def test_descriptors_do_not_accumulate(pool: OffloadPool) -> None:
    body = bytes(1 << 17)
    await pool.run(LIMITS, offload.call, doubled, body, np.arange(1 << 17))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await pool.run(LIMITS, offload.call, doubled, body, np.arange(1 << 17))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_one_client_with_many_long_messages_does_not_starve_another(pool: OffloadPool) -> None:
    ended: list[str] = []

    async def send(client: str, secs: float) -> None:
        offload.CLIENT.set(client)
        await pool.run(LIMITS, offload.call, busy, secs)
        ended.append(client)

    await pool.run(LIMITS, offload.call, pid)  # starts the process
    hog = [asyncio.create_task(send("hog", 0.05)) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.create_task(send("honest", 0.0))
    assert ended.count("hog") <= 2
    await asyncio.gather(*hog)
