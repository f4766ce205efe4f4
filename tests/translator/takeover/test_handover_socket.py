"""The handover socket and its clients: who gets sockets, how many, and what remains if nothing comes of it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.translator.serving.changes import StateChange
from interlingua.translator.takeover import messages
from interlingua.translator.takeover.handover_socket import HandoverSocket, open_handover_socket
from interlingua.translator.takeover.messages import TakeoverError
from interlingua.translator.takeover.predecessor import Predecessor
from tests.waiting import until


@dataclass
class Daemon:
    """What hands over: its socket, those that it passes, and the successors that have begun to accept."""

    path: str
    handover: HandoverSocket
    sockets: list[ListeningSocket]
    taken: list[int] = field(default_factory=list)

    async def successor(self) -> Predecessor:
        """Connect as one, which blocks."""
        return await asyncio.to_thread(Predecessor, self.path)


@asynccontextmanager
async def daemon(folder: Path, *addresses: str) -> AsyncIterator[Daemon]:
    path = str(folder / "handover.sock")
    sockets = [ListeningSocket.open(parse_address(address)) for address in addresses]
    taken: list[int] = []

    async def ready() -> bool:
        return True

    async def nothing() -> list[StateChange]:
        return []

    handover = HandoverSocket(open_handover_socket(path), lambda: sockets, ready, 1.5, taken.append, nothing)
    try:
        yield Daemon(path, handover, sockets, taken)
    finally:
        await handover.close()
        for each in sockets:
            each.close()
            each.remove_file()


def close(predecessor: Predecessor) -> None:
    predecessor._sock.close()
    for each in predecessor.sockets:
        each.close()


async def test_more_sockets_than_a_message_carries(tmp_path: Path) -> None:
    addresses = ["127.0.0.1:0"] * (messages.MAX_DESCRIPTORS + 5)
    async with daemon(tmp_path, *addresses) as here:
        found = await here.successor()
        assert [each.address for each in found.sockets[:-1]] == [each.address for each in here.sockets]
        assert (found.pid, found.was_ready, found.watchdog_secs) == (os.getpid(), True, 1.5)
        assert not any(each.sock.get_inheritable() for each in found.sockets)
        close(found)


async def test_another_user_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with daemon(tmp_path, "127.0.0.1:0") as here:
        assert (tmp_path / "handover.sock").stat().st_mode & 0o777 == 0o600
        own = os.geteuid()
        with monkeypatch.context() as patched, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            patched.setattr(os, "geteuid", lambda: own + 1)
            sock.settimeout(10)
            sock.connect(here.path)
            messages.send(sock, {"version": messages.VERSION})
            with pytest.raises(ConnectionError):
                await asyncio.to_thread(messages.receive, sock)
            # nor does a successor believe a daemon of another user
            with pytest.raises(TakeoverError, match=f"is of user {own}"):
                await here.successor()
        assert "hand-over refused" in caplog.text
        close(await here.successor())


async def test_one_at_a_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "http.sock"
    async with daemon(tmp_path, f"unix:{path}") as here:
        first = await here.successor()
        with pytest.raises(TakeoverError, match="another process is taking over"):
            await here.successor()
        assert not here.sockets[0].removes, "its file is for the successor"
        close(first)
        await until(lambda: "hand-over failed" in caplog.text)
        assert here.sockets[0].removes and not here.taken
        second = await here.successor()
        releasing = asyncio.create_task(second.release())
        await until(lambda: here.taken)
        here.handover.release()
        await asyncio.wait_for(releasing, 30)
        assert "took over" in caplog.text
        assert [each.removes for each in (*here.sockets, *second.sockets)] == [False, True, True]
        for each in second.sockets:
            each.close()
            each.remove_file()
    assert not path.exists()


async def test_a_message_of_another_version(tmp_path: Path) -> None:
    async with daemon(tmp_path, "127.0.0.1:0") as here:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(10)
            sock.connect(here.path)
            messages.send(sock, {"version": 99})
            found, descriptors = await asyncio.to_thread(messages.receive, sock)
            assert "version 1" in found["refused"] and descriptors == []
        close(await here.successor())
