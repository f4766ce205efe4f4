"""The state of every part of the server for browsers that watch it: entries by name, each with the number of
the look at which it last changed, so that a browser gets only what it does not have.

``models/NAME`` is the entry of a model; all others are whole reports.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import orjson

from interlingua.translator.admin.handler import plain_json
from interlingua.translator.dashboard.condition import condition

_LOOK_SECS = 2.0
"""The interval between looks while anyone watches."""

_SHARE = 20
"""A look that takes long is followed by a pause of so many times that."""

_MAX_REMOVED = 1000
"""How many removed entries are remembered, for browsers that have them."""

Reports = Callable[[], Awaitable[Mapping[str, Any]]]


class EntryChanges(NamedTuple):
    """What a browser does not have after look ``number``: all ``entries`` if ``whole``, those that it has are
    then void; otherwise those that have changed, None for one that is gone."""

    number: int
    whole: bool
    entries: dict[str, Any]


class Board:
    """What ``reports`` returns, by name, with ``ready``. Use on one event loop."""

    def __init__(self, reports: Reports, clock: Callable[[], float] = time.monotonic) -> None:
        self._reports = reports
        self._clock = clock
        self._lock = asyncio.Lock()
        self._entries: dict[str, tuple[int, bytes]] = {}
        self._removed: dict[str, int] = {}
        self._number = self._floor = 0
        self._next = 0.0

    async def changes(self, since: int) -> EntryChanges:
        """The changes after look ``since``: all entries for 0, and if removals since then are forgotten."""
        async with self._lock:
            if self._clock() >= self._next:
                began = self._clock()
                await self._look()
                self._next = self._clock() + max(_LOOK_SECS, _SHARE * (self._clock() - began))
        if since < self._floor:
            since = 0
        found: dict[str, Any] = {
            name: orjson.Fragment(value) for name, (number, value) in self._entries.items() if number > since
        }
        if since:
            found |= {name: None for name, number in self._removed.items() if number > since}
        return EntryChanges(self._number, not since, found)

    async def _look(self) -> None:
        # a copy: the loop changes what some reports refer to
        text = plain_json(dict(await self._reports()))
        self._number += 1
        entries = await asyncio.to_thread(_written, text)
        for name in self._entries.keys() - entries.keys():
            del self._entries[name]
            self._removed[name] = self._number
        for name, value in entries.items():
            known = self._entries.get(name)
            if known is None or known[1] != value:
                self._entries[name] = self._number, value
                self._removed.pop(name, None)
        if len(self._removed) > _MAX_REMOVED:
            self._removed.clear()
            self._floor = self._number


def _written(reports: bytes) -> dict[str, bytes]:
    """Every entry as JSON."""
    plain = orjson.loads(reports)
    models = plain.pop("models", {})
    _drop_answers(plain.get("mirror", {}))
    entries = {**plain, "condition": condition({**plain, "models": models})}
    entries |= {f"models/{name}": model for name, model in models.items()}
    return {name: orjson.dumps(value) for name, value in entries.items()}


def _drop_answers(report: dict[str, Any]) -> None:
    """Browsers read both answers of a mirror's worst examples from ``/mirror`` when someone opens them."""
    for mirror in report.get("mirrors", ()):
        for output in mirror["outputs"].values():
            if output["worst"] is not None:
                del output["worst"]["answers"]
