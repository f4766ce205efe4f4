"""One reload at a time, and what goes wrong in the middle of one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from interlingua.translator.config import Config, load
from interlingua.translator.reload.differences import Differences
from interlingua.translator.reload.reloader import Reloader

TEXT = "listeners: [{listen: '127.0.0.1:0', transport: http}]\n"


class Steps:
    """A successor that notes its steps, and fails in one."""

    def __init__(self, noted: list[str], failing: str = "") -> None:
        self._noted = noted
        self._failing = failing

    async def _note(self, step: str) -> None:
        self._noted.append(step)
        await asyncio.sleep(0)
        if step == self._failing:
            raise RuntimeError(step)

    async def prepare(self) -> None:
        await self._note("prepare")

    async def commit(self) -> None:
        await self._note("commit")

    async def finish(self) -> None:
        await self._note("finish")

    async def retire(self, hurry: asyncio.Future[None]) -> None:
        await hurry
        await self._note("retire")

    async def abort(self) -> None:
        await self._note("abort")

    def describe(self, found: Differences) -> None:
        self._noted.append("describe")


def reloader(folder: Path, noted: list[str], failing: str = "") -> Reloader:
    path = folder / "c.yaml"
    path.write_text(TEXT)

    def succession(_: Config) -> Steps:
        return Steps(noted, failing)

    made = Reloader(str(path), load(path), succession)
    made.watchers.append(lambda begins: noted.append("begins" if begins else "ends"))
    made.applied.append(lambda: noted.append("applied"))
    return made


async def test_reloads_take_turns_and_retire_at_the_end(tmp_path: Path) -> None:
    noted: list[str] = []
    made = reloader(tmp_path, noted)
    outcomes = await asyncio.gather(made.reload(), made.reload())
    assert all(each.reloaded for each in outcomes)
    once = ["begins", "prepare", "commit", "finish", "describe", "applied", "ends"]
    assert noted == [*once, *once]
    await made.close()
    assert noted[-2:] == ["retire", "retire"]
    assert (await made.reload()).errors == ("the server is shutting down",)


async def test_what_is_replaced_is_freed_without_other_garbage(tmp_path: Path) -> None:
    """Requests leave no cycles, so nothing else would run the collector."""
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    replaced: list[weakref.ref[Steps]] = []

    def succession(_: Config) -> Steps:
        made = Steps([])
        made.itself = made  # type: ignore[attr-defined]
        replaced.append(weakref.ref(made))
        return made

    gc.disable()
    try:
        made = Reloader(str(path), load(path), succession)
        await made.reload()
        await made.close()
        await asyncio.sleep(0)
        assert [each() for each in replaced] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("failing", "steps"),
    [
        ("prepare", ["prepare", "abort"]),
        ("commit", ["prepare", "commit"]),
        ("finish", ["prepare", "commit", "finish"]),
    ],
)
async def test_failures_that_nobody_expects(
    failing: str, steps: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noted: list[str] = []
    made = reloader(tmp_path, noted, failing)
    outcome = await made.reload()
    assert not outcome.reloaded
    assert ("restart" in outcome.errors[0]) is (failing != "prepare")
    assert noted == ["begins", *steps, "ends"]
    assert "unexpected error" in caplog.text
    await made.close()


async def test_an_invalid_file_reaches_nobody(tmp_path: Path) -> None:
    noted: list[str] = []
    made = reloader(tmp_path, noted)
    (tmp_path / "c.yaml").write_text("listeners: []\n")
    assert (await made.reload()).errors == (f"{tmp_path}/c.yaml:1: listeners: must not be empty",)
    assert noted == ["begins", "ends"]
    await made.close()
