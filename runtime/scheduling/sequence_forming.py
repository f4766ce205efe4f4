"""Chooses the next batch of an instance's sequences, and whether it waits for more.

Contract: pure functions of the waiting requests, at least one, and the time. Only the first waiting request
of each sequence counts, so that its requests run one after the other.
"""

from __future__ import annotations

from interlingua.runtime.scheduling.forming import Rules, choose
from interlingua.runtime.scheduling.sequence_policy import Direct
from interlingua.runtime.scheduling.sequence_table import Lane, LiveSequence

Batch = list[LiveSequence | None]
"""The sequences whose next requests run together, in the order of their rows; None for a padding row."""


def direct(lane: Lane, strategy: Direct, room: int, now: int, fills: bool) -> tuple[Batch, int]:
    """The next batch of at most ``room`` rows, and how many nanoseconds it should wait for more; 0 to run
    now. ``now`` is ``time.monotonic_ns()``. With ``fills`` a sequence is in the row of its slot, after
    padding rows."""
    ready = lane.ready
    first = min(ready, key=_arrived)
    few = len(ready) < strategy.minimum_utilization * lane.size
    wait_ns = max(_arrived(first) + strategy.max_delay_us * 1000 - now, 0) if few else 0
    key = first.waiting[0].key
    if key is None:
        return [first], wait_ns
    together = {sequence.slot: sequence for sequence in ready if sequence.waiting[0].key == key}
    rows = max(together) + 1
    if fills and rows <= room:
        return [together.get(slot) for slot in range(rows)], wait_ns
    return [*sorted(together.values(), key=_arrived)[:room]], wait_ns


def oldest(lane: Lane, rules: Rules, room: int, now: int) -> tuple[Batch, int]:
    """As :func:`direct`, the oldest requests first, as ``rules`` say."""
    found = {sequence.waiting[0]: sequence for sequence in lane.ready}
    waiting = sorted(found, key=lambda entry: entry.arrived)
    taken, wait_ns = choose(waiting, rules, room, now)
    return [found[entry] for entry in taken], wait_ns


def _arrived(sequence: LiveSequence) -> int:
    return sequence.waiting[0].arrived
