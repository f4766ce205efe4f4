"""Finds the calls of one connection whose client has stopped sending a message, or reading an answer.

A call that waits for its client makes progress when something of it arrives, or when its client opens a
flow-control window. A stream between two messages does not wait: it may be quiet for as long as its client
answers PING frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from interlingua.protocols.transport.h2.sender import Sender
from interlingua.protocols.transport.timeouts import Timeouts


class _Wait(NamedTuple):
    """A call that waits for its client: ``what`` is ``body`` or ``write``, ``progress`` has changed last at
    ``since``. Of the message ``latest`` bytes had arrived, or of the answers been sent, at the last look, and
    ``before`` at the first one, ``began``."""

    what: str
    progress: tuple[int, int, int]
    since: float
    began: float
    before: int
    latest: int


class Waits(Protocol):
    """A stream whose server may wait for its client, see ``Stream``."""

    queued: int
    send_window: int
    sent: int
    received: int

    @property
    def arrived(self) -> int:
        """How many bytes of the message are here."""

    @property
    def awaits_body(self) -> bool:
        """Whether the client may send the rest of a message that has begun."""


W = TypeVar("W", bound=Waits)


class StallFinder:
    """Looks at calls now and then."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._seen: dict[Waits, _Wait] = {}

    def stalled(self, calls: Iterable[W], sender: Sender[Any], now: float) -> Iterator[tuple[W, str]]:
        """The calls that have made no progress for too long, or too little, each with what it waits for:
        ``body``, ``slow body`` or ``write``. ``now`` is monotonic time."""
        timeouts = self._timeouts
        seen, self._seen = self._seen, {}
        for call in tuple(calls):
            if call.queued:
                # a window that opens is used up at once; that of the connection holds all streams
                shared = sender.window if call.send_window > 0 else 0
                what, progress, count = "write", (call.send_window, call.sent, shared), call.sent
            elif call.awaits_body:
                count = call.arrived
                what, progress = "body", (call.received, count, 0)
            else:
                continue
            wait = seen.get(call)
            if wait is None or wait.what != what or count < wait.latest:  # or of the next message
                wait = _Wait(what, progress, now, now, count, count)
            elif wait.progress != progress:
                wait = wait._replace(progress=progress, since=now, latest=count)
            self._seen[call] = wait
            quiet, lapse, done = now - wait.since, now - wait.began, count - wait.before
            if what == "write":
                if quiet >= timeouts.write_secs or timeouts.slow_write(lapse, done):
                    yield call, what
            elif quiet >= timeouts.body_secs:
                yield call, what
            elif timeouts.slow_body(lapse, done):
                yield call, "slow body"
