"""One server of a pool, and what is known of its health: a circuit breaker.

The circuit opens when the server cannot be reached, or fails ``threshold`` times in a row; while it is open,
the server is asked by one request at a time, as a trial, and only where no other is better off, or where
nobody probes it and it has been left in peace for a while. Whatever the server answers closes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

PEACE_SECS = 5.0
"""How long a server that has failed and is not probed is left alone while there are others."""

MUTE_SECS = 300.0
"""How long a server that does not answer a call is not asked again."""

Reach = Callable[[], Awaitable[str]]
"""Why no connection comes about; empty where one does."""

_log = logging.getLogger(__name__)


class Member:
    """The server ``url``, called by ``client``. ``running`` counts its current requests, ``requests`` all of
    them, ``failures`` its failures, probes included, and ``ejections`` how often it was ejected for those;
    ``ready`` is its last answer to a probe. ``answers_optional``: it answers calls that not every server
    answers. ``reach`` opens a connection to it and closes that."""

    def __init__(self, client: Any, url: str, threshold: int = 3, reach: Reach | None = None) -> None:
        self.client = client
        self.url = url
        self.answers_optional = False
        self.running = 0
        self.requests = self.failures = self.ejections = 0
        self.ready = True
        self.open = False
        self.trying = False
        self.reason = ""
        self.upstream = ""
        self.probed = False
        self.suspected = asyncio.Event()
        self._threshold = threshold
        self._reach = reach
        self._mute_until = 0.0
        self._hushed = False
        self._cut_off = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_a_row = 0
        self._failed_at = 0.0

    @property
    def usable(self) -> bool:
        """Whether it takes a request now."""
        return not (self.open and self.trying)

    @property
    def rating(self) -> int:
        """How badly off it is: it works, says that it is not ready, fails."""
        if not self.open:
            return 0 if self.ready else 1
        overdue = (not self.probed or self.mute) and time.monotonic() - self._failed_at > PEACE_SECS
        return 0 if overdue else 2

    @property
    def mute(self) -> bool:
        """Whether it is known not to answer what not every server answers."""
        return self._mute_until > time.monotonic()

    async def unreachable(self) -> str:
        """Why it cannot be connected to; empty where it can."""
        return "" if self._reach is None else await self._reach()

    def has_answered(self) -> None:
        """It has answered what not every server answers."""
        self.answers_optional, self._hushed, self._mute_until = True, False, 0.0

    def falls_silent(self, why: str) -> None:
        """It does not answer what not every server answers; all that can be known is whether it is there. One
        that has answered before is taken for another server when it answers requests nevertheless."""
        if self.answers_optional:
            self._hushed = True
            return
        if not self._mute_until:
            _log.info("upstream health unknown", extra={"facts": {**self._facts(), "reason": why}})
        self._mute_until = time.monotonic() + MUTE_SECS

    def begin(self) -> None:
        """A request begins."""
        self.running += 1
        self.requests += 1
        self._idle.clear()

    def end(self) -> None:
        """It has ended."""
        self.running -= 1
        if not self.running:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no request runs."""
        await self._idle.wait()

    def answered(self) -> None:
        """It has said something: it is there."""
        self._in_a_row = 0
        if self._hushed:
            self.answers_optional = self._hushed = False
        if self.open:
            self.open, self.reason = False, ""
            _log.info("upstream recovered", extra={"facts": self._facts()})

    def failed(self, reason: str, *, unreachable: bool = False) -> None:
        """It broke off, or what it said makes no sense; ``unreachable``: there is no connection to it, which
        is certain the first time."""
        self.failures += 1
        self._in_a_row += 1
        self._failed_at = time.monotonic()
        self.reason = reason
        if not self.open and (unreachable or self._in_a_row >= self._threshold):
            self.open = True
            self.ejections += 1
            message = "upstream unreachable" if unreachable else "upstream failed"
            _log.warning(message, extra={"facts": {**self._facts(), "reason": reason}})
        self._cut_off = unreachable
        if unreachable:
            self._mute_until = 0.0  # another may come in its place

    def reached(self) -> None:
        """It takes connections, which is all that can be known of it: no more than that is mended."""
        if self.open and self._cut_off:
            self.answered()

    def said(self, ready: bool) -> None:
        """It has said whether it is ready."""
        self.answered()
        if ready is not self.ready:
            self.ready = ready
            message = "upstream ready" if ready else "upstream not ready"
            _log.info(message, extra={"facts": self._facts()})

    async def close(self) -> None:
        """Close its connections."""
        await self.client.close()

    def _facts(self) -> dict[str, str]:
        return {"upstream": self.upstream, "url": self.url}
