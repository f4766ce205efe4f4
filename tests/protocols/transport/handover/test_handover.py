"""Real processes that serve what this one accepts."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interlingua.protocols.transport.handover.acceptor import Acceptor, Receiver
from interlingua.protocols.transport.handover.beats import PAGE_BYTES, Beats
from interlingua.protocols.transport.handover.received import Takeover
from tests.waiting import until

PROGRAM = Path(__file__).with_name("served.py")


@dataclass
class Process:
    popen: subprocess.Popen[bytes]
    receiver: Receiver
    beats: Beats


@dataclass
class Front:
    acceptor: Acceptor
    processes: list[Process]
    sockets: list[socket.socket]
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self, listener: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.sockets[listener].getsockname())
        self.writers.append(writer)
        return reader, writer

    async def ask(self, listener: int = 0, line: bytes = b"\n") -> tuple[asyncio.StreamWriter, bytes]:
        reader, writer = await self.open(listener)
        writer.write(line)
        return writer, (await asyncio.wait_for(reader.readline(), 60)).strip()


def start(number: int) -> Process:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    page = os.memfd_create("beats")
    os.ftruncate(page, PAGE_BYTES)
    with theirs:
        popen = subprocess.Popen(
            [sys.executable, PROGRAM, str(number), str(theirs.fileno()), str(page)],
            pass_fds=[theirs.fileno(), page],
        )
    beats = Beats(mmap.mmap(page, PAGE_BYTES))
    os.close(page)
    return Process(popen, Receiver(ours, beats), beats)


@pytest.fixture(params=[2])
async def front(request: pytest.FixtureRequest) -> AsyncIterator[Front]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(request.param)]
    processes = [start(number) for number in range(2)]
    accepting = Acceptor(sockets)
    accepting.receivers += [each.receiver for each in processes]
    found = Front(accepting, processes, sockets)
    for each in processes:
        await until(lambda each=each: each.receiver.turns, secs=60)  # type: ignore[misc]
    accepting.start()
    yield found
    accepting.stop()
    for writer in found.writers:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    for each in processes:
        with suppress(ProcessLookupError):
            each.popen.send_signal(signal.SIGCONT)
        each.receiver.close()
        each.popen.wait(10)
    for sock in sockets:
        sock.close()


async def asked(front: Front, count: int, listener: int = 0) -> Counter[bytes]:
    """How many of ``count`` connections, which stay open, each process serves."""
    answers = await asyncio.gather(*(front.ask(listener) for _ in range(count)))
    return Counter(answer.split()[-1] for _, answer in answers)


async def test_connections_spread_evenly_and_keep_their_listener(front: Front) -> None:
    for listener in range(2):
        served = await asked(front, 40, listener)
        assert abs(served[b"0"] - served[b"1"]) <= 2
        _, answer = await front.ask(listener)
        assert answer.split()[0] == b"%d" % listener


@pytest.mark.parametrize("front", [301], indirect=True)
async def test_there_may_be_hundreds_of_listeners(front: Front) -> None:
    for listener in (0, 255, 256, 300, 1):
        _, answer = await front.ask(listener)
        assert answer.split()[0] == b"%d" % listener


async def test_closed_connections_count_no_more(front: Front) -> None:
    """The process whose connections close gets the next ones."""
    answers = await asyncio.gather(*(front.ask() for _ in range(40)))
    for writer, answer in answers:
        if answer.endswith(b"1"):
            writer.close()
    closed = sum(answer.endswith(b"1") for _, answer in answers)
    await until(lambda: front.processes[1].beats.ended == closed)
    served = await asked(front, 12)
    assert served[b"1"] >= 11


async def test_a_stopped_process_gets_no_connections(front: Front) -> None:
    stopped = front.processes[0]
    stopped.popen.send_signal(signal.SIGSTOP)
    await until(lambda: not stopped.receiver.turns)
    served = await asked(front, 20)
    assert served == {b"1": 20}
    stopped.popen.send_signal(signal.SIGCONT)
    await until(lambda: stopped.receiver.turns)
    served = await asked(front, 20)
    assert served[b"0"] >= 18


async def test_a_busy_process_gets_none_while_it_is_busy(front: Front) -> None:
    stalling = asyncio.create_task(front.ask(0, b"stall\n"))
    await until(lambda: not all(each.receiver.turns for each in front.processes))
    served = await asked(front, 6)
    assert len(served) == 1 and not stalling.done()
    for each in front.processes:
        each.popen.send_signal(signal.SIGUSR1)
    _, answer = await stalling
    assert answer.split()[-1] not in served


async def test_connections_wait_while_all_processes_are_stopped(front: Front) -> None:
    """Given to a stopped process, they would wait for it though another one goes on."""
    for each in front.processes:
        each.popen.send_signal(signal.SIGSTOP)
    await until(lambda: not any(each.receiver.turns for each in front.processes))
    asking = asyncio.create_task(asked(front, 5))
    await asyncio.sleep(0.1)
    front.processes[1].popen.send_signal(signal.SIGCONT)
    assert await asking == {b"1": 5}


async def test_a_process_that_exits_loses_its_connections_alone(front: Front) -> None:
    await asked(front, 10)
    reader, writer = await front.open()
    writer.write(b"exit\n")
    assert await reader.read() == b""
    await until(lambda: any(each.popen.poll() is not None for each in front.processes))
    dead = next(each for each in front.processes if each.popen.poll() is not None)
    # still among the receivers: its socket refuses at once, the other takes all
    served = await asked(front, 20)
    assert served == {b"%d" % (1 - front.processes.index(dead)): 20}


async def test_connections_wait_until_a_process_is_there(front: Front) -> None:
    receivers = list(front.acceptor.receivers)
    front.acceptor.receivers.clear()
    waiting = [asyncio.create_task(front.ask()) for _ in range(5)]
    await asyncio.sleep(0.1)
    assert not any(each.done() for each in waiting)
    front.acceptor.receivers += receivers
    assert len(await asyncio.gather(*waiting)) == 5


async def test_a_connection_that_opens_during_a_beat_stops_no_beats() -> None:
    """It is open and still being taken then, so more connections are known than have arrived."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    beats = Beats(mmap.mmap(-1, PAGE_BYTES))
    assert not beats.begun
    takeover = Takeover(theirs, [], beats, lambda: 1, lambda: None)
    assert beats.ended == 0
    async with asyncio.timeout(30):
        before = beats.silent_secs
        while beats.silent_secs >= before:
            before = beats.silent_secs
            await asyncio.sleep(0.01)
    assert beats.begun
    takeover.stop()
    ours.close()


async def test_a_process_ends_with_the_accepting_one(front: Front) -> None:
    for each in front.processes:
        each.receiver.close()
        assert each.popen.wait(10) == 0


async def test_no_descriptor_stays_here(front: Front) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    await asked(front, 1)
    before = count()
    await asked(front, 10)
    # our own ends of the connections, which are in this process too
    assert count() == before + 10
