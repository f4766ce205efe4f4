"""The event loop of the daemon, as the thread of the admin address sees it: its pages, and how late it is.

This is the only seam between the two. Pages cross it, so that the other side may be another process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from interlingua.schemas import Latencies
from interlingua.translator.admin.metrics import Family, Sample, latency_samples

T = TypeVar("T")

_PING_SECS = 0.1
"""The interval between callbacks whose delay is measured."""

_PATIENCE_SECS = 2.0
"""How long a stalled loop is waited for. A page may take longer on a loop that runs."""


class StalledError(Exception):
    """The event loop of the daemon does not run callbacks."""

    def __init__(self, secs: float) -> None:
        super().__init__(f"the event loop of the daemon has been stalled for {secs:.1f} seconds")
        self.secs = secs


class DaemonLoop:
    """Create it on the event loop of the daemon; use it on that of the admin address. ``lag`` counts how long
    callbacks waited for their turn."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sent = 0.0
        """When the callback was scheduled that has not run yet, in monotonic time; 0 if there is none."""
        self.lag = Latencies()

    @property
    def stalled_secs(self) -> float:
        """How long a callback has been waiting; 0 if none waits."""
        sent = self._sent  # the other thread changes it
        return time.monotonic() - sent if sent else 0.0

    async def watch(self) -> None:
        """Measure the lag until cancelled."""
        while True:
            if not self._sent:
                self._sent = time.monotonic()
                self._loop.call_soon_threadsafe(self._ran)
            await asyncio.sleep(_PING_SECS)

    async def call(self, page: Callable[[], Awaitable[T]]) -> T:
        """The answer of ``page``, which runs on the daemon's loop. Raises ``StalledError``, and what the page
        raises."""

        async def answer() -> T:
            return await page()

        pending = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answer(), self._loop))
        try:
            while not pending.done():
                if (stalled := self.stalled_secs) > _PATIENCE_SECS:
                    raise StalledError(stalled)
                await asyncio.wait((pending,), timeout=_PING_SECS)
            return pending.result()
        finally:
            pending.cancel()

    def families(self, stalled_secs: float | None = None) -> Iterator[Family]:
        """The metrics of the loop, which need no answer from it; ``stalled_secs`` as seen before, or as it is
        now."""
        yield Family(
            "interlingua_event_loop_lag_seconds",
            "histogram",
            "How long callbacks waited for their turn on the event loop, measured ten times a second.",
            list(latency_samples(self.lag, {})),
        )
        yield Family(
            "interlingua_event_loop_stalled_seconds",
            "gauge",
            "How long the event loop has been running one callback; 0 if it turns.",
            [Sample(round(self.stalled_secs if stalled_secs is None else stalled_secs, 3))],
        )

    def _ran(self) -> None:
        self.lag.add(int(self.stalled_secs * 1e9))
        self._sent = 0.0
