"""What the gates of one upstream in several processes know of each other: the requests in flight and their
bytes, and which of them waits longest."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic_ns

from interlingua.protocols.shared_counts import SharedCount

COLUMNS = 3
"""How many shared counts an upstream needs."""


class Doorbells:
    """An eventfd for each process. ``row`` is this one: its bell calls ``rung``, once it rings on the event
    loop."""

    def __init__(self, descriptors: Sequence[int], row: int) -> None:
        self.own = descriptors[row]
        self._others = [each for number, each in enumerate(descriptors) if number != row]
        self._rung: list[Callable[[], None]] = []

    def add(self, rung: Callable[[], None]) -> None:
        self._rung.append(rung)

    def remove(self, rung: Callable[[], None]) -> None:
        self._rung.remove(rung)

    def answer(self) -> None:
        """The own bell rings."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.own)
        for rung in self._rung:
            rung()

    def close(self) -> None:
        for each in (self.own, *self._others):
            os.close(each)

    def ring_all(self) -> None:
        """Ring the bells of all other processes."""
        for place in range(len(self._others)):
            self.ring(place)

    def ring(self, place: int) -> None:
        """Ring the bell of another process, by its place among these."""
        # a full counter rings, too
        with suppress(BlockingIOError):
            os.eventfd_write(self._others[place], 1)


class SharedGate:
    """The part of this process in the three shared counts of an upstream."""

    def __init__(
        self, running: SharedCount, nbytes: SharedCount, since: SharedCount, bells: Doorbells
    ) -> None:
        self._running = running
        self._nbytes = nbytes
        self._since = since
        self.bells = bells

    def publish(self, running: int, nbytes: int) -> None:
        """What of this process is in flight."""
        self._nbytes.set(nbytes)
        self._running.set(running)

    def wait_since(self, ns: int) -> None:
        """Publish since when the first of this process waits, as ``time.monotonic_ns()``; 0 if none does."""
        self._since.set(ns)

    @property
    def running(self) -> int:
        """Those of the other processes."""
        return sum(self._running.of_others())

    @property
    def nbytes(self) -> int:
        """Those of the other processes."""
        return sum(self._nbytes.of_others())

    def has_older(self, than: int, at_most_secs: float) -> bool:
        """Whether a request of another process has waited since before ``than``, and not for longer than it
        may: then its process is stopped."""
        oldest = monotonic_ns() - int(1e9 * at_most_secs)
        return any(oldest < since < than for since in self._since.of_others())

    def notify(self) -> None:
        """Have the other processes that wait look again."""
        for place, since in enumerate(self._since.of_others()):
            if since:
                self.bells.ring(place)
