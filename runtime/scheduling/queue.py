"""The requests that wait for a model, by priority and within one in the order in which they came.

Contract: whatever is added is taken, removed, or rejected exactly once. Timers and futures belong to
``scheduler``; which of the waiting run together to ``forming``.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from interlingua.runtime.scheduling.policy import DynamicBatching, QueuePolicy
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, Tensor

FULL = "Exceeds maximum queue size"
EXPIRED = "Request timeout expired"

Memory = dict[str, Tensor]
"""What a model remembers of a sequence, by the input that it is."""


@dataclass(eq=False, slots=True)
class Entry:
    """A request on its way through a queue.

    ``inputs`` are as the model sees them, ``rows`` the batch elements that they have, 0 where there are no
    batches. Entries of one ``key`` may meet in a batch; None meets no other. ``arrived`` and ``expires`` are
    ``time.monotonic_ns()``, 0 for never. ``answer`` gets what the runner gives. ``turn`` is there while it
    waits for earlier answers, ``memory`` once it runs as part of a sequence.
    """

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
    """What waits under the policies of ``batching``, and the ``nbytes`` of it."""

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
        """Put ``entry`` after those of its priority. Sets its ``level`` and when it ``expires``. Raises
        UNAVAILABLE where as many wait as may."""
        entry.level = self._batching.level_of(entry.request.priority)
        level = self._levels[entry.level]
        policy = level.policy
        if 0 < policy.max_size <= len(level.timely) + len(level.late):
            raise InferenceError(ErrorCode.UNAVAILABLE, FULL)
        timeout_us = policy.timeout_of(entry.request.timeout_us)
        entry.expires = entry.arrived + timeout_us * 1000 if timeout_us else 0
        level.timely[entry] = None
        self._length += 1
        self.nbytes += entry.nbytes

    def remove(self, entry: Entry) -> bool:
        """Take ``entry`` out; False where it is not in the queue."""
        level = self._levels[entry.level]
        entries = level.late if entry.late else level.timely
        if entry not in entries:
            return False
        del entries[entry]
        self._length -= 1
        self.nbytes -= entry.nbytes
        return True

    def expire(self, entry: Entry) -> bool:
        """The time of ``entry`` is over: where it still waits, it goes after the others of its priority, or
        out. Whether it is out now."""
        level = self._levels[entry.level]
        if not level.policy.delays:
            return self.remove(entry)
        if entry in level.timely:
            del level.timely[entry]
            level.late[entry] = None
            entry.late, entry.expires = True, 0
        return False
