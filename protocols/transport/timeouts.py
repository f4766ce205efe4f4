"""How long a listener waits for clients.

A connection is in one of four states, each with a timer: between requests (idle), with part of the headers of
a request (header), with part of its body (body), or with an answer that its client does not read (write).
While a request is at work no timer runs: inference may take as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

IDLE_SECS = 300.0
STALL_SECS = 60.0

MIN_BYTES_PER_SEC = 240
"""The least rate of a body, or of an answer that is read: Kestrel's ``MinDataRate``. A modem is ten times as
fast."""

_CHECKS = 8
"""How often per timeout connections are checked: a timeout may take an eighth longer."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """``idle_secs``: without a request, None for the default of the transport. ``header_secs``: from the
    first byte of a request's headers to the last. ``body_secs`` and ``write_secs``: without a byte of a
    request's body, and without a byte of an answer that the client reads; after as long, bodies and answers
    are too slow with fewer than ``min_bytes_per_sec`` since they began, 0 for any rate."""

    idle_secs: float | None = None
    header_secs: float = STALL_SECS
    body_secs: float = STALL_SECS
    write_secs: float = STALL_SECS
    min_bytes_per_sec: int = MIN_BYTES_PER_SEC

    def idle(self, default: float = IDLE_SECS) -> float:
        """The idle timeout on a transport with that default."""
        return default if self.idle_secs is None else self.idle_secs

    def slow_body(self, secs: float, count: int) -> bool:
        """Whether ``count`` bytes of a body in ``secs`` are too few."""
        return self._slow(secs - self.body_secs, count)

    def slow_write(self, secs: float, count: int) -> bool:
        """Whether the client has read too little of an answer: ``count`` bytes in ``secs``."""
        return self._slow(secs - self.write_secs, count)

    def _slow(self, secs: float, count: int) -> bool:
        return secs > 0 and secs * self.min_bytes_per_sec > count


DEFAULT_TIMEOUTS = Timeouts()


class Checked(Protocol):
    """A connection that may be too slow."""

    def check(self, now: float) -> None:
        """End the wait for a client that has been silent too long; ``now`` is monotonic time."""


class Sweep:
    """Checks ``connections`` as long as there are any. One timer serves all: a timer for each would be reset
    with every request."""

    def __init__(self, connections: Iterable[Checked], timeouts: Timeouts) -> None:
        self._connections = connections
        shortest = min(timeouts.idle(), timeouts.header_secs, timeouts.body_secs, timeouts.write_secs)
        self._interval = shortest / _CHECKS
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Check from now on: there is a connection."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def stop(self) -> None:
        """Check no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        now = monotonic()
        connections = tuple(self._connections)
        for connection in connections:
            connection.check(now)
        if connections:
            self.begin()
