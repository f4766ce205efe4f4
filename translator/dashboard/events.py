"""Server-sent events (WHATWG HTML, section 9.2): what a browser that watches gets, as it changes.

The first events have everything, so a browser that connects again needs no ``Last-Event-ID``. Each later one
has what is new: ``points`` and ``ways`` of the traffic, ``entries`` of the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from interlingua.protocols.wire import HttpAnswer
from interlingua.translator.admin.handler import answer, plain
from interlingua.translator.dashboard.board import Board
from interlingua.translator.dashboard.history import History, Selection

MAX_VIEWERS = 16
"""The maximum number of browsers that watch at the same time."""

_EVENT_SECS = 1.0
_WAYS_EVERY = 5
"""Ways are sent with every fifth event of points."""

_HEARTBEAT = b": heartbeat\n\n"
"""A comment, sent when there is nothing else, so that a lost connection is noticed."""


class Cursor(NamedTuple):
    """What a browser has: points until ``since``, entries until look ``number``. ``turn`` counts events."""

    since: float = 0.0
    number: int = 0
    turn: int = 0


Look = Callable[[Selection, Cursor], Awaitable[tuple[bytes, Cursor]]]
"""The next events, and the cursor after them. May raise ``ConnectionError`` if there is no answer now."""


class Live:
    """What browsers watch."""

    def __init__(self, history: History, board: Board) -> None:
        self._history = history
        self._board = board

    async def look(self, selection: Selection, cursor: Cursor) -> tuple[bytes, Cursor]:
        """See :data:`Look`."""
        number, whole, entries = await self._board.changes(cursor.number)
        points = self._history.points(selection, cursor.since)
        found = b""
        if entries:
            found += event("entries", {"first": whole, "entries": entries})
        if points["time"]:
            first = not cursor.since
            found += event("points", {"first": first, "interval_secs": selection.scale, "points": points})
        if cursor.turn % _WAYS_EVERY == 0:
            found += event("ways", self._history.ways(selection))
        # the last interval may not be over: it is sent again
        since = points["time"][-1] if points["time"] else cursor.since
        return found, Cursor(since or 0.0, number, cursor.turn + 1)


def event(name: str, value: Any) -> bytes:
    """One event; JSON has no line breaks."""
    data = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


@dataclass(slots=True)
class Viewers:
    """Those that watch now. Use on one event loop."""

    count: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        """End the answers of all."""
        self.closed.set()


@dataclass(frozen=True, slots=True)
class EventPage:
    """The page ``/events``, at most ``MAX_VIEWERS`` at a time."""

    look: Look
    viewers: Viewers = field(default_factory=Viewers)

    def through(self, look: Look) -> EventPage:
        """The same page, which looks by another event loop."""
        return replace(self, look=look)

    async def write(self, query: str) -> HttpAnswer:
        """Raises ``QueryError``."""
        selection = Selection.of_query(query)
        if self.viewers.count >= MAX_VIEWERS:
            return plain(503, f"{MAX_VIEWERS} browsers are watching already", (("retry-after", "10"),))
        headers = answer(200, "text/event-stream", b"").headers
        # a relay such as nginx would collect events otherwise
        return HttpAnswer(200, (*headers, ("x-accel-buffering", "no")), self._events(selection))

    async def _events(self, selection: Selection) -> AsyncIterator[bytes]:
        viewers, cursor = self.viewers, Cursor()
        viewers.count += 1
        try:
            while not viewers.closed.is_set():
                try:
                    found, cursor = await self.look(selection, cursor)
                except ConnectionError as failure:
                    found = event("stalled", {"reason": str(failure)})
                yield found or _HEARTBEAT
                try:
                    async with asyncio.timeout(_EVENT_SECS):
                        await viewers.closed.wait()
                except TimeoutError:
                    pass
        finally:
            viewers.count -= 1
