"""A fuzz target: a decoder behind a function of bytes, with its seeds and its limits."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_SECS = 0.1
"""The most CPU time of one input, in seconds."""

MAX_MEMORY_BYTES = 64 << 20
"""The most memory of one input."""

_TRIES = 3
"""An input over a limit runs again: the first run may fill caches, and the garbage collector may interrupt it."""

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class CostlyInputError(Exception):
    """An input takes more time or memory than the limits."""


@dataclass(frozen=True)
class Target:
    """``run`` decodes an input and returns if it is refused with the decoder's own error; any exception is a
    finding. ``seeds`` are the first inputs; mutated ones have at most ``max_bytes``."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    max_bytes: int = 1 << 16

    def check(self, data: bytes) -> None:
        """Run ``data`` within the limits. Raises ``CostlyInputError``, and what ``run`` raises."""
        costs = []
        while len(costs) < _TRIES:
            secs, memory = self._cost(data)
            if secs <= MAX_SECS and memory <= MAX_MEMORY_BYTES:
                return
            costs.append(f"{secs * 1000:.0f} ms and {memory >> 20} MiB")
            # the next peak is measured from the memory in use (proc(5), clear_refs)
            with open("/proc/self/clear_refs", "w") as references:
                references.write("5")
        raise CostlyInputError(f"an input of {len(data)} bytes takes {', then '.join(costs)}")

    def _cost(self, data: bytes) -> tuple[float, int]:
        """The CPU time in seconds, and how far the peak of memory is above the memory in use before."""
        with open("/proc/self/statm") as memory:
            before = int(memory.read().split()[1]) * _PAGE_BYTES
        began = time.thread_time()
        self.run(data)
        secs = time.thread_time() - began
        return secs, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
