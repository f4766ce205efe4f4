"""A daemon with plans next to one without: both get the same requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.differential.calls import Kit
from tests.differential.changing import settled
from tests.differential.running import Running
from tests.differential.standin import Act
from tests.differential.world import NO_SCRIPT, Scenario, Step, World, opened, played

_NOTHING = Scenario(lambda kit: ())


@dataclass
class Pair:
    """A world with plans, and one without, that have had the same requests."""

    running: Running
    worlds: list[World]

    def play(self, steps: list[Step]) -> list[Any]:
        return [self.running.runner.run(self._played(world, steps)) for world in self.worlds]

    async def _played(self, world: World, steps: list[Step]) -> Any:
        answers = await played(world, steps)
        seen: list[Any] = []
        if world.there is not None:
            seen, world.there.seen = world.there.seen, []
        return settled([answers, seen, world.counts()])


@contextmanager
def pair(made: Running, caller: str, target: str, script: Mapping[int, Act] = NO_SCRIPT) -> Iterator[Pair]:
    """A daemon with plans and one without, between a caller and upstreams that follow ``script``."""
    stack = AsyncExitStack()

    async def open_both() -> list[World]:
        kit, found = Kit.of(caller), []
        for plans in (True, False):
            there = await made.standin(target, plans)
            if there is not None:
                there.begin(script)
            found.append(await opened(stack, kit, there, plans, _NOTHING))
        return found

    try:
        yield Pair(made, made.runner.run(open_both()))
    finally:
        made.runner.run(stack.aclose())
