"""One server of a pool, and its health: a circuit breaker.

The circuit opens when the server is unreachable or fails ``threshold`` times in a row. While it is open, the
server gets one request at a time, as a trial, and only if no other is better, or if it is not probed and has
had no requests for a while. Any answer closes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

PEACE_SECS = 5.0
"""How long a failed server without probes gets no requests while there are others."""

MUTE_SECS = 300.0
"""How long a server that does not answer a call does not get it again."""

Reach = Callable[[], Awaitable[str]]
"""Opens a connection and closes it: why that failed, empty if it did not."""

_log = logging.getLogger(__name__)


class Health(NamedTuple):
    """What one process has observed of a server; see ``Member``."""

    ready: bool
    open: bool
    cut_off: bool
    reason: str


class Member:
    """The server ``url``, called by ``client``. ``running`` counts its current requests, ``requests`` all of
    them, ``failures`` its failures, probes included, and ``ejections`` how often it was ejected for those;
    ``ready`` is its last answer to a probe. ``answers_optional``: it answers calls that not every server
    answers. ``changed`` is called when its health has changed. ``weight`` and ``zone`` are those of its
    upstream's file, ``due`` is its turn among weighted servers, ``since`` is when it joined or returned."""

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
        self.changed: Callable[[Member], None] | None = None
        self.weight = 1.0
        self.zone = ""
        self.due = 0.0
        self.since = time.monotonic()
        self._threshold = threshold
        self._reach = reach
        self._mute_until = 0.0
        self._hushed = False
        self._cut_off = False
        self._idle: asyncio.Event | None = None
        self._in_a_row = 0
        self._failed_at = 0.0

    @property
    def usable(self) -> bool:
        return not (self.open and self.trying)

    @property
    def rating(self) -> int:
        """0 if it works, 1 if it reports not ready, 2 if it fails."""
        if not self.open:
            return 0 if self.ready else 1
        overdue = (not self.probed or self.mute) and time.monotonic() - self._failed_at > PEACE_SECS
        return 0 if overdue else 2

    @property
    def mute(self) -> bool:
        """Whether it is known not to answer optional calls."""
        return self._mute_until > time.monotonic()

    async def unreachable(self) -> str:
        return "" if self._reach is None else await self._reach()

    def has_answered(self) -> None:
        """It has answered an optional call."""
        self.answers_optional, self._hushed, self._mute_until = True, False, 0.0

    def falls_silent(self, why: str) -> None:
        """It does not answer an optional call, so only its connections show whether it is there. A server
        that has answered before counts as replaced if it still answers requests."""
        if self.answers_optional:
            self._hushed = True
            return
        if not self._mute_until:
            _log.info("upstream health unknown", extra={"facts": {**self._facts(), "reason": why}})
        self._mute_until = time.monotonic() + MUTE_SECS

    def end(self, answered: bool) -> None:
        """A request has ended, with an answer or not."""
        self.running -= 1
        if self._idle is not None and not self.running:
            self._idle.set()
        if answered and (self._in_a_row or self.open or self._hushed):
            self.answered()

    async def idle(self) -> None:
        """Wait until no request is left; none may begin meanwhile."""
        if self.running:
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            await self._idle.wait()

    def answered(self) -> None:
        """It has answered anything."""
        self._in_a_row = 0
        if self._hushed:
            self.answers_optional = self._hushed = False
        if self.open:
            self.open, self.reason = False, ""
            self.since = time.monotonic()
            _log.info("upstream recovered", extra={"facts": self._facts()})
            self._notify()

    def failed(self, reason: str, *, unreachable: bool = False) -> None:
        """It disconnected, or its answer was invalid; ``unreachable``: it refuses connections, so the first
        failure is certain."""
        self.failures += 1
        self._in_a_row += 1
        self._failed_at = time.monotonic()
        self.reason = reason
        opened = not self.open and (unreachable or self._in_a_row >= self._threshold)
        if opened:
            self.open = True
            self.ejections += 1
            message = "upstream unreachable" if unreachable else "upstream failed"
            _log.warning(message, extra={"facts": {**self._facts(), "reason": reason}})
        self._cut_off = unreachable
        if unreachable:
            self._mute_until = 0.0  # another may come in its place
        if opened:
            self._notify()

    def reached(self) -> None:
        """It accepts connections, which only proves that it is no longer unreachable."""
        if self.open and self._cut_off:
            self.answered()

    def said(self, ready: bool) -> None:
        """It has reported whether it is ready."""
        self.answered()
        if ready is not self.ready:
            self.ready = ready
            message = "upstream ready" if ready else "upstream not ready"
            _log.info(message, extra={"facts": self._facts()})
            self._notify()

    @property
    def health(self) -> Health:
        return Health(self.ready, self.open, self._cut_off, self.reason)

    def adopt(self, health: Health) -> None:
        """Take over what another process of this server has observed, which counts and logs it."""
        if health.open and not self.open:
            self._failed_at = time.monotonic()
        if not health.open:
            self._in_a_row = 0
            if self.open:
                self.since = time.monotonic()
        self.ready, self.open, self._cut_off, self.reason = health

    def _notify(self) -> None:
        if self.changed is not None:
            self.changed(self)

    async def close(self) -> None:
        await self.client.close()

    def _facts(self) -> dict[str, str]:
        return {"upstream": self.upstream, "url": self.url}
