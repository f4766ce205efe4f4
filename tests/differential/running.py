"""Runs cases, one after the other, with the stand-ins that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from interlingua.protocols.transport.http import client
from tests.differential.calls import Kit
from tests.differential.standin import Standin
from tests.differential.table import LOCAL, Case
from tests.differential.taken import taken
from tests.differential.world import outcome


class Running:
    """``taken`` has an element for each request that a plan has taken."""

    def __init__(self, runner: asyncio.Runner, taken: list[bool]) -> None:
        self.runner = runner
        self.taken = taken
        self._standins: dict[tuple[str, bool], Standin] = {}

    async def standin(self, target: str, plans: bool = False) -> Standin | None:
        """The upstream that is ``target``, if it is one; another for worlds with ``plans``."""
        if target == LOCAL:
            return None
        found = self._standins.get((target, plans))
        if found is None:
            found = self._standins[target, plans] = Standin(*target.split("/"))
            await found.start()
        return found

    async def close(self) -> None:
        for each in self._standins.values():
            await each.stop()

    async def _outcome(self, case: Case, plans: bool) -> dict[str, Any]:
        return await outcome(Kit.of(case.caller), await self.standin(case.target), plans, case.scenario)

    def outcome(self, case: Case, plans: bool) -> dict[str, Any]:
        self.taken.clear()
        return self.runner.run(self._outcome(case, plans))


@contextmanager
def running() -> Iterator[Running]:
    """An upstream's connection that rests after a failure does so until the end: when it is used again depends
    on the time otherwise."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(client, "REST_SECS", 3600)
        made = Running(runner, taken(patch))
        try:
            yield made
        finally:
            runner.run(made.close())
