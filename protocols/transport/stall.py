"""Timers that end connections on which nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlingua.protocols.transport.timeouts import IDLE_SECS, Timeouts


class StallWatch:
    """Aborts a connection whose client reads nothing for the write timeout, or too slowly, between
    :meth:`start` and :meth:`cancel`. ``unsent`` is how many bytes wait for it: by default those in the buffer
    of ``transport``."""

    def __init__(
        self,
        transport: asyncio.Transport,
        timeouts: Timeouts,
        unsent: Callable[[], int] | None = None,
    ) -> None:
        self._transport = transport
        self._timeouts = timeouts
        self._unsent = transport.get_write_buffer_size if unsent is None else unsent
        self._left = 0
        self._least = 0  # how much has to be read until the next look
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch, if part of the output is unsent and not watched yet."""
        if self._timer is None and (left := self._unsent()):
            secs = self._timeouts.write_secs
            self._left = left
            self._least = min(left, max(1, int(secs * self._timeouts.min_bytes_per_sec)))
            self._timer = asyncio.get_running_loop().call_later(secs, self._check)

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
        if self._left - self._unsent() >= self._least:
            self.start()
        else:
            self._transport.abort()


class IdleWatch:
    """Calls ``expired`` on a connection that receives nothing: after the idle timeout if ``state`` is "idle",
    the header timeout if it is "header" (its protocol is not known yet), the body timeout if it is "partial"
    (part of a request has arrived) or if that arrives too slowly, never if it is "busy". ``received_at`` is
    the loop's time of the last byte or answer, set by the owner; that of a "header" is its first byte.
    ``arrived`` is the size of the part that has arrived."""

    def __init__(
        self,
        timeouts: Timeouts,
        state: Callable[[], str],
        arrived: Callable[[], int],
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
        self._timeouts = timeouts
        self._state = state
        self._arrived = arrived
        self._partial: tuple[float, int, int] | None = None  # since when, its sizes then and now
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self.received_at = self._loop.time()
        self._timer = self._loop.call_later(self._interval, self._check)

    def cancel(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _check(self) -> None:
        state, now = self._state(), self._loop.time()
        if now - self.received_at >= self._allowed[state] or (state == "partial" and self._is_slow(now)):
            self._expired()
            return
        if state != "partial":
            self._partial = None
        self._timer = self._loop.call_later(self._interval, self._check)

    def _is_slow(self, now: float) -> bool:
        """Whether the part of a request grows too slowly; a smaller part is of another request."""
        arrived = self._arrived()
        since, before, last = self._partial or (now, arrived, arrived)
        if arrived < last:
            since, before = now, arrived
        self._partial = since, before, arrived
        return self._timeouts.slow_body(now - since, arrived - before)
