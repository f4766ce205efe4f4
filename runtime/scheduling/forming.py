"""Chooses the next batch, and whether it waits for more.

Contract: a pure function of the queue and the time. A batch holds entries of one key, the first in the queue
among them, and no more rows than allowed; it waits only while it could grow, no other entry waits after it,
and its oldest entry is younger than the longest delay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from interlingua.runtime.scheduling.policy import DynamicBatching
from interlingua.runtime.scheduling.queue import Entry

_PASSED_OVER = 64
"""The search ends after so many entries that do not fit, so that choosing never costs more than running."""


@dataclass(frozen=True, slots=True)
class Rules:
    """``preferred`` sizes are ascending and not empty. With ``ordered`` no entry overtakes another of its
    priority that does not fit."""

    max_rows: int
    preferred: tuple[int, ...]
    delay_ns: int
    ordered: bool
    preferred_sizes: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "preferred_sizes", frozenset(self.preferred))

    @classmethod
    def of(cls, batching: DynamicBatching, max_rows: int) -> Rules:
        preferred = tuple(sorted(batching.preferred_sizes)) or (max_rows,)
        return cls(max_rows, preferred, batching.max_delay_us * 1000, batching.preserve_ordering)


def choose(entries: Iterable[Entry], rules: Rules, room: int, now: int) -> tuple[list[Entry], int]:
    """The next batch of at most ``room`` entries, and how many nanoseconds it should wait for more; 0 to run
    now. ``now`` is ``time.monotonic_ns()``."""
    taken: list[Entry] = []
    rows = best = passed = 0
    complete = False
    for entry in entries:
        if taken and entry.key != taken[0].key:
            # Triton never waits before a request that gains nothing by it
            complete = True
            passed += 1
            if rules.ordered or passed > _PASSED_OVER:
                break
            continue
        together = rows + entry.rows
        if taken and not best and together > rules.preferred[-1]:
            best = len(taken)
        if taken and together > rules.max_rows:
            complete = True
            break
        taken.append(entry)
        rows = together
        if rows in rules.preferred_sizes:
            best = len(taken)
        if entry.key is None or rows >= rules.max_rows or len(taken) == room:
            complete = True
            break
    if not taken:
        return taken, 0
    remaining = min(entry.arrived for entry in taken) + rules.delay_ns - now
    if best and (remaining > 0 or not rules.delay_ns):
        return taken[:best], 0
    # a request may have more rows than any preferred size: no other makes that a preferred one
    complete |= rows >= rules.preferred[-1]
    return taken, 0 if complete or remaining <= 0 else remaining
