"""Timers that end connections on which nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlingua.protocols.transport.timeouts import IDLE_SECS, Timeouts


class StallWatch:
    """Aborts a connection whose client reads nothing for ``secs`` between :meth:`start` and
    :meth:`cancel`."""

    def __init__(self, transport: asyncio.Transport, secs: float) -> None:
        self._transport = transport
        self._secs = secs
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch, if part of the output is unsent and not watched yet."""
        if self._timer is None and (left := self._transport.get_write_buffer_size()):
            self._left = left
            self._timer = asyncio.get_running_loop().call_later(self._secs, self._check)

    def resumed(self) -> None:
        """The client has read most of the output. A closing connection is watched to the end."""
        if not self._transport.is_closing():
            self.cancel()

    def cancel(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Close the connection once everything is sent, or abort it as above."""
        if not self._transport.is_closing():
            self._transport.close()
            self.start()

    def _check(self) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() < self._left:
            self.start()
        else:
            self._transport.abort()


class IdleWatch:
    """Calls ``expired`` on a connection that receives nothing: after the idle timeout if ``state`` is "idle",
    the header timeout if it is "header" (its protocol is not known yet), the body timeout if it is "partial"
    (part of a request has arrived), never if it is "busy". ``heard`` is the loop's time of the last sign of
    life, set by the owner; that of a "header" is its first byte."""

    def __init__(
        self,
        timeouts: Timeouts,
        state: Callable[[], str],
        expired: Callable[[], None],
        idle_secs: float = IDLE_SECS,
    ) -> None:
        self._allowed = {
            "idle": timeouts.idle(idle_secs),
            "header": timeouts.header_secs,
            "partial": timeouts.body_secs,
            "busy": float("inf"),
        }
        self._interval = min(self._allowed.values())
        self._state = state
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self.heard = self._loop.time()
        self._timer = self._loop.call_later(self._interval, self._check)

    def cancel(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _check(self) -> None:
        if self._loop.time() - self.heard >= self._allowed[self._state()]:
            self._expired()
        else:
            self._timer = self._loop.call_later(self._interval, self._check)
