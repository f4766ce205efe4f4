"""The memory that the mirrors of all front ends share; see ``translator.mirror.shared``."""

from __future__ import annotations

import mmap
from itertools import chain, count

from interlingua.protocols.shared_counts import SharedCounts
from interlingua.translator.config.options import Config
from interlingua.translator.mirror.shared import EXITS, SHAPE, SLOTS, kept_columns
from interlingua.translator.workers.limits import CountsOwner

Slots = dict[tuple[str, int], int]
"""The slot of each route, in their order, by its options and how many equal ones are before it."""


class MirrorsOwner(CountsOwner):
    """That of ``front_ends`` and their mirror processes. ``slots`` are those of the configuration that is
    served. Raises ``OSError``."""

    def __init__(self, front_ends: int, config: Config) -> None:
        super().__init__("mirrors", 2 * front_ends + 1, *SHAPE)
        self._front_ends = front_ends
        self._own = SharedCounts(mmap.mmap(self._page, 0), 2 * front_ends, 2 * front_ends + 1, *SHAPE)
        self._exits = self._own.count(EXITS)
        self._next = count()
        self.slots: Slots = {}
        self.slots = self.slots_of(config)

    def slots_of(self, config: Config) -> Slots:
        """The slots of ``config``. A mirror that stays, with its destination, keeps its slot."""
        found: Slots = {}
        for route in config.routes:
            model = None if route.mirror is None else config.models.get(route.mirror.to)
            upstream = None if model is None or model.upstream is None else config.upstreams[model.upstream]
            of = repr((route, None if upstream is None else (model, upstream)))
            key = of, sum(each == of for each, _ in found)
            known = self.slots.get(key)
            found[key] = self._unused() if known is None else known
        return found

    def exited(self, row: int) -> None:
        """A front end has exited, and with it its mirror process."""
        self._exits.set(self._exits.total() + 1)
        for kept in map(self._own.count, chain.from_iterable(map(kept_columns, self.slots.values()))):
            kept.inherit(row)
            kept.inherit(row + self._front_ends)
        super().exited(row)
        super().exited(row + self._front_ends)

    def _unused(self) -> int:
        """A slot whose mirror has recorded nothing."""
        slot = next(self._next) % SLOTS
        for column in kept_columns(slot):
            self._own.count(column).reset()
        return slot
