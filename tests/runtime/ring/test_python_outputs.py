"""Outputs of Python models lie in memory of their process: front ends read them there, and nothing copies them."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.ring import lending
from interlingua.runtime.ring.channel import create
from interlingua.runtime.ring.client import RuntimeClient
from interlingua.runtime.ring.server import RuntimeServer
from interlingua.schemas import Datatype, InferRequest, Tensor
from tests.runtime.python_models import loaded
from tests.waiting import until

MADE = """
def execute(self, requests):
    return [answer([int(given(request)[0])] * int(given(request)[1])) for request in requests]
"""
LARGE = 50_000


@dataclass
class FrontEnd:
    """A channel to a runtime process that has a model."""

    client: RuntimeClient
    server: RuntimeServer

    async def infer(self, value: int, count: int = LARGE) -> Tensor:
        """The output of ``count`` numbers, each ``value``."""
        given = np.array([value, count], np.int32)
        request = InferRequest("m", (Tensor("IN", Datatype.INT32, (2,), given.data.cast("B")),))
        (output,) = (await self.client.infer(request, "m")).outputs
        return output

    @property
    def copied_bytes(self) -> int:
        """How much of the arena for answers is in use."""
        arena = self.server._channel.arena
        arena.trim()
        return arena.used_bytes

    @property
    def lent(self) -> int:
        return len(self.server._channel._lender.lent)


def connected(model: LocalModel) -> FrontEnd:
    here, there = create(4 << 20)
    return FrontEnd(RuntimeClient(here), RuntimeServer(there, lambda _: model, {}, lambda: None))


@pytest.fixture
async def front_end(tmp_path: Path) -> AsyncIterator[FrontEnd]:
    model = loaded(tmp_path, MADE)
    found = connected(model)
    yield found
    found.client.close()
    await found.server.close()
    await model.close()


def is_of(value: int, output: Tensor) -> bool:
    return bool((output.numpy() == value).all())


async def test_large_outputs_are_read_in_place(front_end: FrontEnd) -> None:
    output = await front_end.infer(7)
    assert is_of(7, output)
    assert output.view.readonly
    assert front_end.copied_bytes == 0
    assert front_end.lent == 1


async def test_small_outputs_are_copied(front_end: FrontEnd) -> None:
    assert is_of(3, await front_end.infer(3, 4000))
    assert front_end.lent == 0


async def test_an_output_stays_while_it_has_views(front_end: FrontEnd) -> None:
    kept = [await front_end.infer(value) for value in range(5)]
    parts = [output.view[4000:] for output in kept]
    del kept
    for value in range(5, 10):
        assert is_of(value, await front_end.infer(value))
    assert [set(np.frombuffer(part, np.int32)) for part in parts] == [{value} for value in range(5)]


async def test_memory_is_used_again_when_the_views_are_gone(front_end: FrontEnd) -> None:
    maps: list[int] = []
    for value in range(30):
        assert is_of(value, await front_end.infer(value))
        maps.append(len(front_end.client._channel._borrower.maps))
    assert max(maps) <= 3


async def test_a_reader_that_keeps_much_gets_copies(
    front_end: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "MOST_BYTES", 10 * LARGE)
    kept = [await front_end.infer(value) for value in range(6)]
    assert front_end.lent == 2
    assert front_end.copied_bytes > 0
    assert all(is_of(value, output) for value, output in enumerate(kept))


async def test_memory_of_a_model_that_is_gone_is_unmapped(tmp_path: Path) -> None:
    model = loaded(tmp_path, MADE)
    front_end = connected(model)
    kept = await front_end.infer(1)
    await model.close()
    maps = front_end.client._channel._borrower.maps
    assert maps
    assert is_of(1, kept)
    del kept
    # what is gone is noticed when something is sent or received
    channel: Any = front_end.server._channel

    def gone() -> bool:
        channel._settle()
        return not maps

    await until(gone)
    front_end.client.close()
    await front_end.server.close()


async def test_two_front_ends_read_the_same_memory(tmp_path: Path) -> None:
    model = loaded(tmp_path, MADE)
    front_ends = [connected(model) for _ in range(2)]
    for value in range(4):
        outputs = await asyncio.gather(*(each.infer(value) for each in front_ends))
        assert all(is_of(value, output) for output in outputs)
        del outputs
    for each in front_ends:
        each.client.close()
        await each.server.close()
    await model.close()


async def test_a_front_end_that_ends_returns_what_it_had(tmp_path: Path) -> None:
    model = loaded(tmp_path, MADE)
    first, other = connected(model), connected(model)
    kept = [await first.infer(value) for value in range(3)]
    first.client.close()
    await until(lambda: not first.lent)
    assert is_of(9, await other.infer(9))
    assert [is_of(value, output) for value, output in enumerate(kept)].count(True) >= 2
    other.client.close()
    await other.server.close()
    await first.server.close()
    await model.close()


async def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    model = loaded(tmp_path, MADE)

    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for value in range(3):
        front_end = connected(model)
        right = is_of(value, await front_end.infer(value))
        assert right
        await asyncio.sleep(0)  # what wakes this task refers to the answer
        front_end.client.close()
        await front_end.server.close()
        del front_end
    # the runtime has the region itself: its descriptor, and that of the mapping
    assert count() == before + 2
    await model.close()
