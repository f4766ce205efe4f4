"""Limits the requests in flight to an upstream, and their bytes.

Contract: other requests wait in order, for a limited time. A request larger than the byte limit passes alone.
The limits hold over all processes of the server, if it has several: there, too, the one that waits longest
goes first, unless its process does not take its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from interlingua.runtime.upstream.pool.shared_gate import SharedGate
from interlingua.schemas import ErrorCode, InferenceError

_YIELD_SECS = 0.01
"""How long a place is left to an older request of another process, and how often those that wait look for
places that processes have left by exiting."""


class Gate:
    """At most ``max_concurrency`` requests at once, and ``max_bytes`` of them (None: any number); others wait
    at most ``max_wait_secs``. ``running`` and ``nbytes`` count those inside."""

    def __init__(
        self, max_concurrency: int | None = None, max_bytes: int | None = None, max_wait_secs: float = 1.0
    ) -> None:
        self._most = max_concurrency
        self._most_bytes = max_bytes
        self._wait_secs = max_wait_secs
        self._waiting: deque[_Waiting] = deque()
        self._shared: SharedGate | None = None
        self._again: asyncio.TimerHandle | None = None
        self.running = 0
        self.nbytes = 0

    def share(self, shared: SharedGate) -> None:
        """Hold the limits together with the gates of other processes."""
        self._shared = shared
        shared.bells.add(self._let_in)
        self._publish()
        if self._waiting:
            self._publish_wait()

    def close(self) -> None:
        """No more requests come."""
        if self._shared is not None:
            self._shared.bells.remove(self._let_in)

    @property
    def waiting(self) -> int:
        return sum(not each.turn.done() for each in self._waiting)

    @asynccontextmanager
    async def passing(self, upstream: str, nbytes: int, deadline: float | None) -> AsyncIterator[None]:
        """Be inside until the block ends. Raises OVERLOADED after the longest wait, DEADLINE_EXCEEDED if
        ``deadline`` comes first; both name ``upstream``."""
        if self._waiting or not self._enters(nbytes, time.monotonic_ns()):
            await self._turn(upstream, nbytes, deadline)
        try:
            yield
        finally:
            self._leave(nbytes)

    def extend(self, nbytes: int) -> Callable[[object], None]:
        """Be inside also after the block, until the result is called."""
        self._enter(nbytes)
        return lambda _: self._leave(nbytes)

    async def _turn(self, upstream: str, nbytes: int, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        seconds = self._wait_secs if left is None else max(0.0, min(self._wait_secs, left))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(nbytes, turn, time.monotonic_ns()))
        if self._shared is not None:
            self._publish_wait()
        try:
            await asyncio.wait((turn,), timeout=seconds)
        except asyncio.CancelledError:
            if turn.done():
                self._leave(nbytes)
            raise
        finally:
            if not turn.done():
                turn.cancel()
                self._let_in()  # later ones may fit
        if turn.cancelled():
            raise self._refusal(upstream, seconds, left is not None and left <= self._wait_secs)

    def _refusal(self, upstream: str, seconds: float, late: bool) -> InferenceError:
        limits = {"max_concurrency": self._most, "max_bytes_in_flight": self._most_bytes}
        limit_text = " and ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)
        running, size = self._in_flight()
        return InferenceError(
            ErrorCode.DEADLINE_EXCEEDED if late else ErrorCode.OVERLOADED,
            f"upstream '{upstream}': as much is under way as {limit_text} allows: {running} requests of "
            f"{size} bytes; waited {seconds:.3g} seconds",
        )

    def _in_flight(self) -> tuple[int, int]:
        """The requests and bytes of all processes."""
        shared = self._shared
        if shared is None:
            return self.running, self.nbytes
        return self.running + shared.running, self.nbytes + shared.nbytes

    def _enters(self, nbytes: int, since: int) -> bool:
        """Let a request in that waits ``since``, if it fits."""
        shared = self._shared
        if shared is None:
            fits = self._fits(self.running + 1, self.nbytes + nbytes)
            if fits:
                self._enter(nbytes)
            return fits
        if shared.has_older(since, self._wait_secs):
            shared.notify()
            return False
        return self._claims(nbytes)

    def _claims(self, nbytes: int) -> bool:
        """Let a request in if it fits, whatever waits in other processes."""
        running, size = self._in_flight()
        if not self._fits(running + 1, size + nbytes):
            return False
        self._enter(nbytes)
        # another process may have let one in meanwhile
        if self._fits(*self._in_flight()):
            return True
        self.running -= 1
        self.nbytes -= nbytes
        self._publish()
        return False

    def _fits(self, running: int, nbytes: int) -> bool:
        """Whether so much may be in flight."""
        if running == 1:
            return True
        if self._most is not None and running > self._most:
            return False
        return self._most_bytes is None or nbytes <= self._most_bytes

    def _enter(self, nbytes: int) -> None:
        self.running += 1
        self.nbytes += nbytes
        self._publish()

    def _leave(self, nbytes: int) -> None:
        self.running -= 1
        self.nbytes -= nbytes
        self._publish()
        self._let_in(left=True)

    def _publish(self) -> None:
        if self._shared is not None:
            self._shared.publish(self.running, self.nbytes)

    def _let_in(self, left: bool = False, whatever_waits: bool = False) -> None:
        """Let waiting requests in, as long as the first fits; one has ``left``."""
        moved = left
        while self._waiting:
            nbytes, turn, since = self._waiting[0]
            if not turn.done():
                if not (self._claims(nbytes) if whatever_waits else self._enters(nbytes, since)):
                    break
                turn.set_result(None)
            self._waiting.popleft()
            moved = True
        if self._shared is not None and moved:
            self._publish_wait()
            self._shared.notify()

    def _publish_wait(self) -> None:
        """Publish since when the first request waits, and look again in a moment if one does."""
        assert self._shared is not None, "other processes read it"  # noqa: S101
        self._shared.wait_since(self._waiting[0].since if self._waiting else 0)
        if self._waiting and self._again is None:
            self._again = asyncio.get_running_loop().call_later(_YIELD_SECS, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._let_in(whatever_waits=True)
        if self._waiting and self._shared is not None:
            self._publish_wait()


class _Waiting(NamedTuple):
    """A request that waits for its ``turn``, ``since`` a ``time.monotonic_ns()``."""

    nbytes: int
    turn: asyncio.Future[None]
    since: int
