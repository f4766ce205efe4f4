"""Waiting for a change."""

from __future__ import annotations

import asyncio
import time

from interlingua.runtime.models.changes import Changes


async def test_a_change_ends_the_waiting_of_all() -> None:
    changes = Changes()
    waiting = [asyncio.create_task(changes.since(0, None)) for _ in range(3)]
    await asyncio.sleep(0)
    changes.happened()
    await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert changes.count == 1


async def test_none_is_missed() -> None:
    changes = Changes()
    seen = changes.count
    changes.happened()
    await asyncio.wait_for(changes.since(seen, None), 20)


async def test_time_passes() -> None:
    changes = Changes()
    began = time.monotonic()
    await changes.since(0, 0.02)
    assert 0.01 < time.monotonic() - began < 1
    assert not changes._waiting


async def test_who_stops_waiting_is_forgotten() -> None:
    changes = Changes()
    task = asyncio.create_task(changes.since(0, None))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not changes._waiting
    changes.happened()
