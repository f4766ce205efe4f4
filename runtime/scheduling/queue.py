"""The queue of a model, by priority and arrival.

Contract: each entry is taken, removed, or rejected exactly once. ``scheduler`` has the timers and futures,
``forming`` chooses batches.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from interlingua.runtime.scheduling.policy import DynamicBatching, QueuePolicy
from interlingua.schemas import InferenceError, InferRequest, Tensor, unavailable

FULL = "Exceeds maximum queue size"
EXPIRED = "Request timeout expired"

Memory = dict[str, Tensor]
"""A model's memory of a sequence, by input."""


@dataclass(eq=False, slots=True)
class Entry:
    """A request on its way through a queue. ``inputs`` are as the model sees them, ``rows`` their batch
    elements, 0 without batches. Entries of one ``key`` may share a batch; None shares none. ``arrived`` and
    ``expires`` are ``time.monotonic_ns()``, 0 for never. ``answer`` gets the result of the runner. ``turn``
    is set while it waits for earlier answers, ``memory`` once it runs as part of a sequence."""

    request: InferRequest
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    rows: int
    key: object
    arrived: int
    answer: asyncio.Future[Any]
    level: int = 0
    expires: int = 0
    nbytes: int = 0
    late: bool = False
    timer: asyncio.TimerHandle | None = None
    turn: asyncio.Future[None] | None = None
    memory: Memory | None = None

    def cancel(self, error: InferenceError) -> None:
        """Fail everything that the caller may wait for with ``error``."""
        for waiter in (self.answer, self.turn):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)

    def abandon(self) -> None:
        """The caller no longer waits for the answer."""
        if not self.answer.done():
            self.answer.cancel()
        elif not self.answer.cancelled():
            # an exception that is never retrieved would be logged
            self.answer.exception()


@dataclass(slots=True)
class _Level:
    policy: QueuePolicy
    timely: OrderedDict[Entry, None] = field(default_factory=OrderedDict)
    late: OrderedDict[Entry, None] = field(default_factory=OrderedDict)


class RequestQueue:
    """The queue under the policies of ``batching``, and its ``nbytes``."""

    def __init__(self, batching: DynamicBatching) -> None:
        self._batching = batching
        self._levels = [
            _Level(batching.policies.get(number, batching.default_policy))
            for number in range(batching.priority_levels + 1)
        ]
        self.nbytes = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Entry]:
        """The entries in the order in which they are to run. Changes end the iteration."""
        for level in self._levels:
            yield from level.timely
            yield from level.late

    def add(self, entry: Entry) -> None:
        """Append ``entry`` to its priority. Sets its ``level`` and when it ``expires``. Raises UNAVAILABLE
        for a full queue."""
        entry.level = self._batching.level_of(entry.request.priority)
        level = self._levels[entry.level]
        policy = level.policy
        if 0 < policy.max_size <= len(level.timely) + len(level.late):
            raise unavailable(FULL)
        timeout_us = policy.timeout_of(entry.request.timeout_us)
        entry.expires = entry.arrived + timeout_us * 1000 if timeout_us else 0
        level.timely[entry] = None
        self._length += 1
        self.nbytes += entry.nbytes

    def remove(self, entry: Entry) -> bool:
        """Remove ``entry``; False if it is not in the queue."""
        level = self._levels[entry.level]
        entries = level.late if entry.late else level.timely
        if entry not in entries:
            return False
        del entries[entry]
        self._length -= 1
        self.nbytes -= entry.nbytes
        return True

    def expire(self, entry: Entry) -> bool:
        """The timeout of ``entry``: if it still waits, it moves after the others of its priority, or out.
        Returns whether it is out."""
        level = self._levels[entry.level]
        if not level.policy.delays:
            return self.remove(entry)
        if entry in level.timely:
            del level.timely[entry]
            level.late[entry] = None
            entry.late, entry.expires = True, 0
        return False
