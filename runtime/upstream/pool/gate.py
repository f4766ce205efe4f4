"""Limits the requests in flight to an upstream, and their bytes.

Contract: other requests wait in order, for a limited time. A request larger than the byte limit passes alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from interlingua.schemas import ErrorCode, InferenceError


class Gate:
    """At most ``max_concurrency`` requests at once, and ``max_bytes`` of them (None: any number); others wait
    at most ``max_wait_secs``. ``running`` and ``nbytes`` count those inside."""

    def __init__(
        self, max_concurrency: int | None = None, max_bytes: int | None = None, max_wait_secs: float = 1.0
    ) -> None:
        self._most = max_concurrency
        self._most_bytes = max_bytes
        self._wait_secs = max_wait_secs
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.running = 0
        self.nbytes = 0

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for _, turn in self._waiting)

    @asynccontextmanager
    async def passing(self, upstream: str, nbytes: int, deadline: float | None) -> AsyncIterator[None]:
        """Be inside until the block ends. Raises OVERLOADED after the longest wait, DEADLINE_EXCEEDED if
        ``deadline`` comes first; both name ``upstream``."""
        if self._waiting or not self._fits(nbytes):
            await self._turn(upstream, nbytes, deadline)
        else:
            self._enter(nbytes)
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
        self._waiting.append((nbytes, turn))
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
        return InferenceError(
            ErrorCode.DEADLINE_EXCEEDED if late else ErrorCode.OVERLOADED,
            f"upstream '{upstream}': as much is under way as {limit_text} allows: {self.running} requests of "
            f"{self.nbytes} bytes; waited {seconds:.3g} seconds",
        )

    def _fits(self, nbytes: int) -> bool:
        if not self.running:
            return True
        if self._most is not None and self.running >= self._most:
            return False
        return self._most_bytes is None or self.nbytes + nbytes <= self._most_bytes

    def _enter(self, nbytes: int) -> None:
        self.running += 1
        self.nbytes += nbytes

    def _leave(self, nbytes: int) -> None:
        self.running -= 1
        self.nbytes -= nbytes
        self._let_in()

    def _let_in(self) -> None:
        """Let waiting requests in, as long as the first fits."""
        while self._waiting:
            nbytes, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
                continue
            if not self._fits(nbytes):
                return
            self._waiting.popleft()
            self._enter(nbytes)
            turn.set_result(None)
