"""What the mirrors of a server of several processes share: one queue, one limit of running copies.

The supervisor makes the memory once. Each mirror has a slot there, which it keeps over reloads. A front end
has a row for the copies that it holds, and its mirror process another for those that it runs.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

from interlingua.protocols.shared_counts import SharedCount, SharedCounts
from interlingua.runtime.upstream.pool import shared_gate
from interlingua.runtime.upstream.pool.shared_gate import Doorbells, SharedGate
from interlingua.translator.mirror import kept, shared_sequences
from interlingua.translator.mirror.kept import KeptCounts
from interlingua.translator.mirror.shared_sequences import SharedSequences

SLOTS = 1024
"""Mirrors of one server, with those of earlier configurations whose copies still run."""

_KEPT = 2 + shared_gate.COLUMNS
_COLUMNS = _KEPT + kept.COLUMNS

SHAPE = SLOTS * _COLUMNS + 1, shared_sequences.TABLES
"""How many counts and tables of names each process has. The last count is of exits, in the row of the
owner, which is the last one."""


EXITS = SLOTS * _COLUMNS
"""The place of the last count."""


def kept_columns(slot: int) -> range:
    """The counts of what a mirror has recorded: they outlive a process."""
    return range(slot * _COLUMNS + _KEPT, (slot + 1) * _COLUMNS)


@dataclass(frozen=True, slots=True)
class SharedMirror:
    """The part of this process in one mirror: the copies that it holds and their bytes, the gate of those
    that it runs, and the sequences. ``kept`` is what it has recorded."""

    held: SharedCount
    nbytes: SharedCount
    gate: SharedGate
    sequences: SharedSequences
    kept: KeptCounts

    def publish(self, held: int, nbytes: int) -> None:
        """What this process holds."""
        self.nbytes.set(nbytes)
        self.held.set(held)

    def total(self) -> tuple[int, int]:
        """The copies that all processes hold, and their bytes."""
        return self.held.total(), self.nbytes.total()


class SharedMirrors:
    """The memory as the process of ``row`` sees it, with the ``descriptors`` of its owner: of the memory and
    of a doorbell for each process. Its ``mirror_process`` has that row. Use on one event loop."""

    def __init__(self, descriptors: Sequence[int], row: int) -> None:
        self.descriptors = tuple(descriptors)
        page, *bells = descriptors
        self.mirror_process = row + len(bells) // 2
        self._counts = SharedCounts(mmap.mmap(page, 0), row, len(bells), *SHAPE)
        self._bells = Doorbells(bells, row)
        self._slots: set[int] = set()
        asyncio.get_running_loop().add_reader(self._bells.own, self._bells.answer)

    def of(self, slot: int) -> SharedMirror:
        self._slots.add(slot)
        first = slot * _COLUMNS
        held, nbytes, running, size, since = map(self._counts.count, range(first, first + _KEPT))
        gate = SharedGate(running, size, since, self._bells)
        tables = [self._counts.names(number) for number in range(shared_sequences.TABLES)]
        sequences = SharedSequences(slot, tables, self._counts.count(EXITS), self._bells)
        return SharedMirror(held, nbytes, gate, sequences, KeptCounts.of(self._kept(slot)))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._bells.own)
        for each in self.descriptors:
            os.close(each)

    def mirror_process_exited(self) -> None:
        """The mirror process of this front end runs nothing any more; what it has recorded remains."""
        for slot in self._slots:
            for count in self._kept(slot):
                count.inherit(self.mirror_process)
        self._counts.clear(self.mirror_process)
        self._bells.ring_all()

    def _kept(self, slot: int) -> list[SharedCount]:
        return [self._counts.count(column) for column in kept_columns(slot)]


@dataclass(frozen=True, slots=True)
class MirrorSlots:
    """The slots in ``shared`` of the mirrors of a configuration, by the number of the route."""

    shared: SharedMirrors
    slots: tuple[int, ...]

    def of(self, route: int) -> SharedMirror:
        return self.shared.of(self.slots[route])
