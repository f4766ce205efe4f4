"""The event loop that everything here runs on: uvloop where it is installed, else asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run ``main`` to its end on a fresh loop and return its result, as ``asyncio.run`` does."""
    with asyncio.Runner(debug=debug, loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Any:
    try:
        import uvloop
    except ImportError:  # no wheel for this platform; slower, otherwise the same
        return None
    return uvloop.new_event_loop
