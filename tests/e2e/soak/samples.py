"""What a daemon holds while it works, sampled at moments of rest, and its growth."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import requests

from tests.e2e.daemon import Daemon

Samples = dict[str, list[float]]
"""A value of every measure at each of the ``secs``."""

SECS = "secs"
LEAST = 6
"""The fewest samples that show a slope."""

WARM = 0.4
"""The share of the samples before which caches, pools and the allocator's arenas fill."""

LIMITS: Mapping[str, float] = {
    "memory, MiB": 16.0,
    "descriptors": 8.0,
    "threads": 4.0,
    "tasks": 4.0,
    "shared memory regions": 1.0,
    "requests in flight": 1.0,
    "requests in queues": 1.0,
}
"""The most that each may grow in the time of a soak."""

_LOOK_SECS, _SETTLE_SECS = 0.2, 10.0
"""Between two looks at what the work has left, and the longest time until it is gone: a busy machine closes the
connections of clients that have gone, and ends their requests, a little later."""

_PASSING = ("descriptors", "tasks", "requests in flight", "requests in queues")

SHORT_LIMITS: Mapping[str, float] = {**LIMITS, "memory, MiB": 48.0, "descriptors": 32.0}
"""The same for less than 10 minutes, which end while caches, the allocator and pools of connections still fill."""

LONG_SECS, LEAST_SECS = 600.0, 60.0
"""The time of a soak in which memory becomes steady; and the least that shows a leak of a request."""

LEAK_BYTES = 1000
"""A leak of so many bytes per request must fail a soak of ``LEAST_SECS``."""

_METRICS = {
    "tasks": "interlingua_event_loop_tasks",
    "shared memory regions": "interlingua_shared_memory_regions",
    "requests in flight": "interlingua_requests_in_flight",
    "requests in queues": "nv_inference_pending_request_count",
}
"""Sums over all labels, from /metrics."""


def sample(daemon: Daemon, admin: str, session: requests.Session) -> dict[str, float]:
    """The measures at this moment."""
    process = Path("/proc") / str(daemon.process.pid)
    pages = int((process / "statm").read_text().split()[1])
    found = {
        "memory, MiB": pages * os.sysconf("SC_PAGESIZE") / 2**20,
        "descriptors": float(len(list((process / "fd").iterdir()))),
        "threads": float(len(list((process / "task").iterdir()))),
    }
    text = session.get(f"http://{admin}/metrics", timeout=30).text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    for measure, metric in _METRICS.items():
        found[measure] = sum(float(value) for name, _, value in lines if name.partition("{")[0] == metric)
    return found


def settled(daemon: Daemon, admin: str, session: requests.Session) -> dict[str, float]:
    """The measures when nothing that passes through is left, at most ``_SETTLE_SECS`` later."""
    deadline = time.monotonic() + _SETTLE_SECS
    found = sample(daemon, admin, session)
    while time.monotonic() < deadline:
        before = found
        time.sleep(_LOOK_SECS)
        found = sample(daemon, admin, session)
        if not found["requests in flight"] and all(found[name] == before[name] for name in _PASSING):
            break
    return found


class Gate:
    """Holds all work for a moment, so that a sample has nothing that only passes through."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._working = 0
        self.over = False
        """Whether all work should end."""

    @contextmanager
    def work(self) -> Iterator[None]:
        """One piece of work of a thread, once the gate is open."""
        while True:
            self._open.wait()
            self._count(1)
            if self._open.is_set():
                break
            self._count(-1)  # it closed meanwhile
        try:
            yield
        finally:
            self._count(-1)

    async def opened(self) -> None:
        """Wait on an event loop until the gate is open; then :meth:`work` does not wait."""
        while not self._open.is_set():
            await asyncio.sleep(0.01)

    async def rest(self) -> None:
        """Close the gate and wait until no work is left."""
        self._open.clear()
        while self._working:
            await asyncio.sleep(0.01)

    def resume(self) -> None:
        """Open the gate."""
        self._open.set()

    def end(self) -> None:
        """Let all work end."""
        self.over = True
        self._open.set()

    def _count(self, change: int) -> None:
        with self._lock:
            self._working += change


async def watch(
    daemon: Daemon, admin: str, gate: Gate, secs: float, count: int, before: Callable[[], None] | None = None
) -> Samples:
    """Take up to ``count`` samples in ``secs`` seconds, each while ``gate`` is closed and after ``before()``, and at
    least ``LEAST``; then end all work."""
    samples: Samples = {name: [] for name in (SECS, *LIMITS)}
    began = time.monotonic()
    with requests.Session() as session:
        while not gate.over:
            await asyncio.sleep(secs / count)
            await gate.rest()
            if before is not None:
                await asyncio.to_thread(before)
            samples[SECS].append(time.monotonic() - began)
            for name, value in (await asyncio.to_thread(settled, daemon, admin, session)).items():
                samples[name].append(value)
            if time.monotonic() - began >= secs and len(samples[SECS]) >= LEAST:
                gate.end()
            gate.resume()
    return samples


def limits(secs: float, requests: int) -> Mapping[str, float]:
    """The most that each measure may grow in a soak of ``secs`` seconds with so many requests."""
    most = LIMITS if secs >= LONG_SECS else SHORT_LIMITS
    if secs < LEAST_SECS:
        return most
    leak = 0.9 * LEAK_BYTES * requests * (1 - WARM) / 2**20
    return {**most, "memory, MiB": min(most["memory, MiB"], leak)}


def warm_secs(samples: Samples) -> float:
    """When the first sample was taken that counts."""
    return samples[SECS][int(WARM * len(samples[SECS]))]


def growth(samples: Samples) -> dict[str, float]:
    """The slope of each measure after ``WARM``, times the duration: the median of the slopes between any two
    samples (Theil and Sen), which a peak does not change."""
    begin = int(WARM * len(samples[SECS]))
    secs = np.array(samples[SECS][begin:])
    first, second = np.triu_indices(len(secs), 1)
    lapse, duration = secs[second] - secs[first], secs[-1] - secs[0]
    values = {name: np.array(samples[name][begin:]) for name in LIMITS}
    return {
        name: float(np.median((each[second] - each[first]) / lapse) * duration)
        for name, each in values.items()
    }
