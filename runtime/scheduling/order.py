"""Keeps answers in the order in which their requests entered here: as they leave the queue, or before.

Contract: every entry leaves, answered or not; none leaves with an answer before an earlier one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from interlingua.runtime.scheduling.queue import Entry


class Order:
    def __init__(self) -> None:
        self._entries: OrderedDict[Entry, None] = OrderedDict()

    def enter(self, entry: Entry) -> None:
        """Put ``entry`` after all others, unless it has a place already. It is sure to run, or to leave."""
        self._entries[entry] = None

    async def turn(self, entry: Entry) -> None:
        """Wait until all that entered before ``entry`` have left."""
        if next(iter(self._entries)) is entry:
            return
        entry.turn = asyncio.get_running_loop().create_future()
        await entry.turn

    def leave(self, entry: Entry) -> None:
        """``entry`` is done, if it ever entered."""
        if entry in self._entries:
            del self._entries[entry]
            first = next(iter(self._entries), None)
            if first is not None and first.turn is not None and not first.turn.done():
                first.turn.set_result(None)
