"""``python -m tests.chaos.kills``: kills each kind of process of a server again and again, under load.

Callers of every dialect and transport check every answer. A kill may fail what its victim had in flight, and what
needs the victim until it is back: nothing else, and nothing may be left of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.callers import NEW, Caller
from tests.chaos.measure import RECOVERY_SECS, calm
from tests.chaos.world import World

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
_PLACE = re.compile(r"(<!-- table: kills -->\n).*?(<!-- end -->)", re.DOTALL)

_EXPECTED = ("process exited", "model process exited")
_MORE_FILES, _MORE_BYTES = 16, 32 << 20
"""What the whole server may hold more in the end: connections come and go."""


@dataclass(frozen=True)
class Kind:
    """``victims`` finds the processes of this kind. Callers of the ``affected`` targets may get errors, ``each`` at
    most for one kill; None: as long as the process is not back."""

    name: str
    victims: Callable[[World], list[int]]
    affected: tuple[str, ...]
    each: int | None = None


def _named(prefix: str) -> Callable[[World], list[int]]:
    return lambda world: [pid for pid, name in world.processes().items() if name.startswith(prefix)]


KINDS = (
    # a request in flight on the connection, and one that left before the client noticed its end
    Kind("front end", _named("front end"), ("local", "python", "polled", "remote", NEW), 2),
    Kind("runtime process", _named("runtime"), ("local", "python", "polled", NEW)),
    Kind("process of a Python model", lambda world: world.workers(), ("python",)),
)


@dataclass
class Row:
    """What callers saw of all kills of one kind."""

    kind: Kind
    outcomes: Counter[str] = field(default_factory=Counter)
    normal_secs: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Held:
    """What all processes of the server hold together."""

    processes: int
    files: int
    memory: int
    shared: frozenset[str]


def held(world: World) -> Held:
    """What the server holds now. Memory is proportional: a shared page counts once."""
    files = memory = 0
    pids = world.processes()
    for pid in pids:
        place = Path(f"/proc/{pid}")
        files += len(list((place / "fd").iterdir()))
        memory += int((place / "smaps_rollup").read_text().partition("Pss:")[2].split()[0]) << 10
    return Held(len(pids), files, memory, frozenset(os.listdir("/dev/shm")))


def _left(before: Held, after: Held) -> list[str]:
    """New objects in /dev/shm that no process has mapped, as those of other programs are."""
    new = after.shared - before.shared
    for maps in Path("/proc").glob("[0-9]*/maps") if new else ():
        with suppress(OSError):
            text = maps.read_text()
            new = {name for name in new if f"/dev/shm/{name}" not in text}
    return sorted(name for name in new if Path("/dev/shm", name).exists())


async def run(folder: Path, rounds: int, kinds: Sequence[Kind] = KINDS) -> tuple[list[Row], Held, Held]:
    """Kill a process of each kind ``rounds`` times. The rows, and what the server held before and after."""
    world = World(folder, front_ends=2)
    rows = [Row(kind) for kind in kinds]
    try:
        await world.start()
        await calm(world.callers, time.monotonic())
        # what a first restart allocates stays
        await asyncio.gather(*(_kill(world, row.kind, Row(row.kind)) for row in rows[:1]))
        before = await _rest(world)
        for number in range(rounds * len(kinds)):
            await _kill(world, kinds[number % len(kinds)], rows[number % len(kinds)])
        after = await _rest(world)
    finally:
        await world.stop()
    unexpected = [str(line)[:500] for line in world.errors() if line["event"] not in _EXPECTED]
    rows[-1].violations += unexpected + _growth(before, after)
    return rows, before, after


async def _kill(world: World, kind: Kind, row: Row) -> None:
    """Kill one process, and wait until all callers get their answers."""
    victims = kind.victims(world)
    assert victims, f"there is a {kind.name}"
    began = time.monotonic()
    seen = {id(caller): len(caller.seen) for caller in world.callers}
    os.kill(min(victims), signal.SIGKILL)
    if not await calm(world.callers, began):
        row.violations.append(f"not normal after {RECOVERY_SECS:g} s")
    last = began
    for caller in world.callers:
        since = caller.seen[seen[id(caller)] :]
        outcomes = Counter(each.outcome for each in since)
        row.outcomes.update(outcomes)
        last = max([last, *(each.at + each.took for each in since if each.outcome != "ok")])
        row.violations += _unfit(caller, kind, outcomes)
    row.normal_secs.append(last - began)


def _unfit(caller: Caller, kind: Kind, outcomes: Counter[str]) -> list[str]:
    failed = outcomes.total() - outcomes["ok"]
    most = 0 if caller.target not in kind.affected else failed if kind.each is None else kind.each
    if failed <= most and not outcomes["wrong"]:
        return []
    return [f"{caller.dialect} {caller.transport} {caller.target}: {dict(outcomes)} {caller.faults[-2:]}"]


async def _rest(world: World) -> Held:
    """What the server holds once that no longer changes: processes that end take a moment."""
    found = held(world)
    for _ in range(50):
        await asyncio.sleep(0.2)
        before, found = found, held(world)
        if before.processes == found.processes:
            break
    return found


def _growth(before: Held, after: Held) -> list[str]:
    found = []
    if after.processes != before.processes:
        found.append(f"{before.processes} processes became {after.processes}")
    if after.files > before.files + _MORE_FILES:
        found.append(f"{before.files} descriptors became {after.files}")
    if after.memory > before.memory + _MORE_BYTES:
        found.append(f"{before.memory >> 20} MiB became {after.memory >> 20}")
    return found + [f"left in /dev/shm: {name}" for name in _left(before, after)]


def table(rows: Sequence[Row], before: Held, after: Held) -> str:
    """A line for each kind, and what the server held."""
    lines = [
        "| killed | times | answers | errors | wrong | seconds to normal: median, worst |",
        "|---|--:|--:|---|--:|---|",
    ]
    for row in rows:
        errors = [
            f"{count} {name}" for name, count in row.outcomes.most_common() if name not in ("ok", "wrong")
        ]
        secs = f"{statistics.median(row.normal_secs):.2f}, {max(row.normal_secs):.2f}"
        cells = (
            row.kind.name,
            len(row.normal_secs),
            row.outcomes["ok"],
            ", ".join(errors) or "none",
            row.outcomes["wrong"],
            secs,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    held_text = (
        f"Before and after, all processes together: {before.files} and {after.files} descriptors, "
        f"{before.memory >> 20} and {after.memory >> 20} MiB; "
        f"{len(_left(before, after))} objects left in `/dev/shm`."
    )
    return "\n".join([*lines, "", held_text])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often each kind is killed")
    parser.add_argument("--write", action="store_true", help="write the table into docs/workers.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, before, after = asyncio.run(run(Path(folder) / "world", options.rounds))
    print(table(rows, before, after))
    if options.write:
        text = PAGE.read_text()
        PAGE.write_text(
            _PLACE.sub(lambda found: f"{found[1]}\n{table(rows, before, after)}\n\n{found[2]}", text)
        )
    violations = [f"{row.kind.name}: {violation}" for row in rows for violation in row.violations]
    print(*violations, sep="\n", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
