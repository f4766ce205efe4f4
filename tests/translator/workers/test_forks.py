"""The fork server starts processes in a fraction of the time of a fresh interpreter, and may exit itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interlingua.translator.workers.forks import ForkServer
from interlingua.translator.workers.process import Process
from tests.waiting import until

SECS = 60


class Started(Process):
    """A front end that waits for its first message, and so does nothing."""

    def __init__(self, forks: ForkServer, name: str = "front end 7") -> None:
        self.reasons: list[str] = []
        super().__init__(forks, "front_end", name, lambda *_: None, self.reasons.append)

    async def started(self) -> int:
        await until(lambda: self.pid, SECS)
        return self.pid

    async def ended(self) -> str:
        async with asyncio.timeout(SECS):
            return await self.over


@pytest.fixture
async def forks() -> AsyncIterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def stat(pid: int) -> dict[str, Any]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_processes_have_names_and_one_thread_and_share_nothing(forks: ForkServer) -> None:
    many = [Started(forks, f"front end {number}") for number in range(3)]
    pids = [await each.started() for each in many]
    (parent,) = {stat(pid)["PPid"] for pid in pids}
    assert stat(int(parent))["Name"] == "fork server"
    # a fork copies one thread: the others would leave their locks behind
    assert stat(int(parent))["Threads"] == "1"
    names = {"front end 0", "front end 1", "front end 2"}
    await until(lambda: {stat(pid)["Name"] for pid in pids} == names, SECS)
    one, *others = many
    # no other process has a copy of its control socket
    one.control.send("stop", 0)
    one.control.close()
    assert await one.ended() in ("exit code 0", "exit code 1")
    for each in others:
        assert not each.over.done()
        each.kill()
        assert await each.ended() == "killed by SIGKILL"
        assert each.reasons == ["killed by SIGKILL"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    late = Started(forks)
    await asyncio.sleep(0)
    late.kill()
    assert await late.ended() == "killed before its start"


async def test_a_fork_server_that_exits_starts_again(forks: ForkServer) -> None:
    before = Started(forks)
    pid = await before.started()
    os.kill(int(stat(pid)["PPid"]), signal.SIGKILL)
    async with asyncio.timeout(SECS):
        while True:
            after = Started(forks)
            starting = asyncio.ensure_future(after.started())
            await asyncio.wait((starting, after.over), return_when=asyncio.FIRST_COMPLETED)
            starting.cancel()
            if after.pid:
                break
            assert after.reasons == ["the fork server has exited"]
            await asyncio.sleep(0.05)
    assert not before.over.done()
    for each, reason in ((before, "exit code not known"), (after, "killed by SIGKILL")):
        each.kill()
        assert await each.ended() == reason
    forks.close()
    assert await Started(forks).ended() == "the fork server has exited"
