"""Waiting for a state, with a deadline that a busy machine meets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], secs: float = 60.0) -> None:
    """Block until ``holds()`` is true."""
    deadline = time.monotonic() + secs
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.005)


async def until(holds: Callable[[], object], secs: float = 20.0) -> float:
    """Run the event loop until ``holds()`` is true. Returns how many seconds that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < secs, "it never came about"
        await asyncio.sleep(0.005)
    return time.monotonic() - began
