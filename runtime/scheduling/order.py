"""Answers that leave in the order in which their requests were taken from the queue.

Contract: whoever has entered leaves, answered or not; nobody leaves with an answer before those who entered
earlier.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from interlingua.runtime.scheduling.queue import Entry


class Order:
    """The requests under way, the first that may leave first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Entry, None] = OrderedDict()

    def enter(self, entry: Entry) -> None:
        """``entry`` has been taken from the queue."""
        self._entries[entry] = None

    async def turn(self, entry: Entry) -> None:
        """Wait until all that entered before ``entry`` have left."""
        if next(iter(self._entries)) is entry:
            return
        entry.turn = asyncio.get_running_loop().create_future()
        await entry.turn

    def leave(self, entry: Entry) -> None:
        """``entry`` is done with, if it ever entered."""
        if entry in self._entries:
            del self._entries[entry]
            first = next(iter(self._entries), None)
            if first is not None and first.turn is not None and not first.turn.done():
                first.turn.set_result(None)
