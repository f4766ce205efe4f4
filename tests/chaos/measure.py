"""Brings one fault after another upon a world, and finds what its callers saw."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.callers import PAIRS, PAUSE_SECS, Caller, Seen
from tests.chaos.faults import Fault
from tests.chaos.world import World

RECOVERY_SECS = 30.0
"""The longest time to normal."""

LATE_SECS = 1.0
"""An answer that takes longer is not normal."""

_ASKED = 5
"""How many requests a caller makes during a fault, if there is no other work."""

_CALM = 3
"""How many answers in a row a caller must get to be normal again."""

DIALECTS = tuple(dict.fromkeys(dialect for dialect, _ in PAIRS))


@dataclass
class Row:
    """``outcomes``: what the callers of affected targets saw during the fault, by dialect; of all targets, where none is
    affected. ``violations``: what must not happen."""

    fault: Fault
    outcomes: Mapping[str, Counter[str]]
    normal_secs: float
    violations: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """How many requests got no answer."""
        return sum(seen["lost"] for seen in self.outcomes.values())


async def run(faults: Sequence[Fault], folder: Path, secs: float) -> list[Row]:
    """Every fault for ``secs``, in one world."""
    clock = any(fault.clock for fault in faults)
    world = World(folder, clock, pause_secs=min(PAUSE_SECS, secs / _ASKED))
    try:
        await asyncio.gather(world.prepare(), world.start())
        await calm(world.callers, time.monotonic())
        rows = [await _suffer(world, fault, secs) for fault in faults]
    finally:
        await world.stop()
    expected = {event for fault in faults for event in fault.logs}
    rows[-1].violations += [str(line)[:2000] for line in world.errors() if line["event"] not in expected]
    return rows


async def _suffer(world: World, fault: Fault, secs: float) -> Row:
    began = time.monotonic()
    await fault.begin(world)
    await asyncio.sleep(secs)
    await fault.end(world)
    healed = time.monotonic()
    normal = await calm(world.callers, healed)
    affected = [caller for caller in world.callers if not fault.affected or caller.target in fault.affected]
    spans = {
        id(caller): [seen for seen in caller.seen if seen.at + seen.took >= began] for caller in world.callers
    }
    outcomes = {name: Counter[str]() for name in DIALECTS}
    for caller in affected:
        outcomes[caller.dialect].update(seen.outcome for seen in spans[id(caller)])
    for large in world.large.values():
        outcomes[large.dialect].update(f"large {seen.outcome}" for seen in large.seen)
    ends = [seen.at + seen.took for each in affected for seen in spans[id(each)] if not _normal(seen)]
    row = Row(fault, outcomes, max([0.0, *(end - healed for end in ends)]))
    for caller in world.callers:
        row.violations += _violations(caller, spans[id(caller)], fault)
    for large in world.large.values():
        row.violations += [
            f"large {large.transport}: {text}" for text in large.faults if text.startswith("lost")
        ]
    world.large.clear()
    if not normal:
        row.violations.append(f"not normal after {RECOVERY_SECS:g} s")
    if world.daemon.popen.poll() is not None:
        row.violations.append(f"the daemon exited with {world.daemon.popen.returncode}")
    return row


def _violations(caller: Caller, seen: Sequence[Seen], fault: Fault) -> list[str]:
    outcomes = Counter(each.outcome for each in seen)
    allowed = {"ok"} if caller.target not in fault.affected else set(outcomes) - {"wrong"}
    if caller.target not in fault.lost:
        allowed -= {"lost"}
    unfit = {outcome: count for outcome, count in outcomes.items() if outcome not in allowed}
    if not unfit:
        return []
    return [f"{caller.dialect} {caller.transport} {caller.target}: {unfit} {caller.faults[-3:]}"]


def _normal(seen: Seen) -> bool:
    return seen.outcome == "ok" and seen.took < LATE_SECS


async def calm(callers: Sequence[Caller], since: float) -> bool:
    """Wait until every caller gets its answers; whether that is so."""
    end = time.monotonic() + RECOVERY_SECS
    while time.monotonic() < end:
        last = [[seen for seen in caller.seen[-_CALM:] if seen.at > since] for caller in callers]
        if all(len(seen) == _CALM and all(map(_normal, seen)) for seen in last):
            return True
        await asyncio.sleep(0.05)
    return False
