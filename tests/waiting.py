"""Waiting for a state, with a deadline that a busy machine meets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any


def eventually(holds: Callable[[], object], secs: float = 60.0) -> None:
    """Block until ``holds()`` is true."""
    deadline = time.monotonic() + secs
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.005)


async def steady(value: Callable[[], Any], secs: float = 0.3, within_secs: float = 60.0) -> Any:
    """Run the event loop until ``value()`` has stayed the same for ``secs``, and return it."""
    async with asyncio.timeout(within_secs):
        before, now = object(), value()
        while before != now:
            await asyncio.sleep(secs)
            before, now = now, value()
    return now


async def until(holds: Callable[[], object], secs: float = 20.0, pace_secs: float = 0.005) -> float:
    """Run the event loop until ``holds()`` is true, with a look every ``pace_secs``; 0 looks in every turn.

    Returns how many seconds that took.
    """
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < secs, "it never came about"
        await asyncio.sleep(pace_secs)
    return time.monotonic() - began
