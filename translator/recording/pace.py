"""When a recorded request is sent again, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from interlingua.translator.recording.record import Record

Numbered = tuple[int, Record]
"""A record and its number in the file, from 1."""

_WINDOW = 1024
_WINDOW_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Pace:
    """At ``rate`` requests a second, or ``speed`` times as fast as they came (both whatever the server does:
    an open loop), or ``concurrency`` at a time, the next as soon as one is answered. One of the three."""

    rate: float | None = None
    speed: float | None = None
    concurrency: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests have a time at which they are due."""
        return self.concurrency is None

    def due_secs(self, position: int, since_first_secs: float) -> float:
        """When to send the request at ``position`` (from 0), which came ``since_first_secs`` after the first;
        in seconds after the start, 0 for at once."""
        if self.rate is not None:
            return position / self.rate
        if self.speed is not None:
            return max(since_first_secs, 0.0) / self.speed
        return 0.0


def in_order(records: Iterable[Record]) -> Iterator[Numbered]:
    """``records`` in the order in which they began; they are written when they end. Those that overlapped
    with more than a thousand others, or with 64 MiB of them, may come too late."""
    waiting: list[tuple[int, int, Record]] = []
    held = 0
    for number, record in enumerate(records, 1):
        heapq.heappush(waiting, (record.began_unix_ns, number, record))
        held += record.nbytes
        while waiting and (len(waiting) > _WINDOW or held > _WINDOW_BYTES):
            _, first, least = heapq.heappop(waiting)
            held -= least.nbytes
            yield first, least
    while waiting:
        _, first, least = heapq.heappop(waiting)
        yield first, least
