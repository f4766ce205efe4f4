"""When to send a recorded request, and in which order."""

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
    """One of three: ``rate`` requests per second or ``speed`` times the recorded pace (open loops, whatever
    the server does), or ``concurrency`` requests at a time (a closed loop)."""

    rate: float | None = None
    speed: float | None = None
    concurrency: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests are due at fixed times."""
        return self.concurrency is None

    def due_secs(self, position: int, since_first_secs: float) -> float:
        """When to send the request at ``position`` (from 0), recorded ``since_first_secs`` after the first;
        in seconds after the start."""
        if self.rate is not None:
            return position / self.rate
        if self.speed is not None:
            return max(since_first_secs, 0.0) / self.speed
        return 0.0


def in_order(records: Iterable[Record]) -> Iterator[Numbered]:
    """``records`` sorted by start; files have them in the order of their ends. A record that overlaps with
    more than ``_WINDOW`` others, or ``_WINDOW_BYTES`` of them, may come late."""
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
