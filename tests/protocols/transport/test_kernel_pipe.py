"""Bytes that go from one socket to another inside the kernel."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from interlingua.protocols.transport import kernel_pipe
from interlingua.protocols.transport.descriptors import pipe_ceiling
from interlingua.protocols.transport.kernel_pipe import KernelPipe, can_pipe
from interlingua.protocols.transport.ready_descriptors import ReadyDescriptors, ready_descriptors_of
from tests.waiting import until

pytestmark = pytest.mark.skipif(not hasattr(os, "SPLICE_F_MOVE"), reason="splice(2) is Linux's")

MIB = 1 << 20


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@dataclass
class Ends:
    """What a pipe connects, and the far ends of both."""

    source: asyncio.Transport
    sink: asyncio.Transport
    sender: socket.socket
    receiver: socket.socket
    moved: list[int] = field(default_factory=list)
    blocked: list[bool] = field(default_factory=list)

    def pipe(self, left: int) -> KernelPipe:
        return KernelPipe(
            self.source, self.sink, left, self.moved.append, lambda _, blocked: self.blocked.append(blocked)
        )

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sender, data)

    async def receive(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            found += await asyncio.get_running_loop().sock_recv(self.receiver, count - len(found)) or b"end"
        return bytes(found)


@asynccontextmanager
async def ends(family: socket.AddressFamily = socket.AF_INET) -> AsyncIterator[Ends]:
    """Two pairs of sockets, connected as those of callers and upstreams are."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            if family == socket.AF_UNIX:
                ours, theirs = socket.socketpair()
            else:
                with socket.create_server(("127.0.0.1", 0)) as listening:
                    theirs = socket.create_connection(listening.getsockname())
                    ours, _ = listening.accept()
            theirs.setblocking(False)
            stack.callback(theirs.close)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            transport.pause_reading()
            stack.callback(transport.abort)
            found.append((transport, theirs))
        (source, sender), (sink, receiver) = found
        yield Ends(source, sink, sender, receiver)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
async def test_it_moves_exactly_what_it_should(family: socket.AddressFamily) -> None:
    data = pattern(5 * MIB + 3)
    async with ends(family) as both:
        before = descriptors()
        pipe = both.pipe(len(data) - 7)
        sending = asyncio.create_task(both.send(data))
        running = asyncio.create_task(pipe.run())
        assert await both.receive(len(data) - 7) == data[:-7]
        await running
        await sending
        assert sum(both.moved) == len(data) - 7 and pipe.unsent() == 0
        # what follows is for the transport
        with socket.socket(fileno=os.dup(both.source.get_extra_info("socket").fileno())) as own:
            assert own.recv(100) == data[-7:]
        assert descriptors() == before


async def test_it_waits_for_a_sink_that_takes_no_more() -> None:
    data = pattern(64 * MIB)
    async with ends() as both:
        sending = asyncio.create_task(both.send(data))
        running = asyncio.create_task((pipe := both.pipe(len(data))).run())
        await until(lambda: both.blocked == [True])
        assert pipe.unsent() > 0
        held = sum(both.moved)
        await asyncio.sleep(0.05)
        assert sum(both.moved) == held < len(data)
        assert await both.receive(len(data)) == data
        await running
        await sending
        assert both.blocked == [True, False] * (len(both.blocked) // 2)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_source_that_ends_ends_it(reset: bool) -> None:
    async with ends() as both:
        before = descriptors()
        running = asyncio.create_task(both.pipe(MIB).run())
        await both.send(b"abc")
        assert await both.receive(3) == b"abc"
        if reset:
            both.sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        both.sender.close()
        await asyncio.wait_for(running, 30)
        assert both.moved == [3] and len(descriptors()) == len(before) - 1


async def test_a_source_that_has_only_what_it_cannot_move_ends_it() -> None:
    """Urgent data holds up splice(2), not an ordinary receive, and its socket stays readable."""
    async with ends() as both:
        before = descriptors()
        running = asyncio.create_task(both.pipe(MIB).run())
        both.sender.send(b"abc")
        both.sender.send(b"!", socket.MSG_OOB)
        both.sender.send(b"def")
        assert await both.receive(3) == b"abc"
        await asyncio.wait_for(running, 30)
        assert both.moved == [3] and descriptors() == before
        with socket.socket(fileno=os.dup(both.source.get_extra_info("socket").fileno())) as own:
            assert own.recv(100) == b"def"


async def test_a_pipe_that_would_be_small_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with many pipes gets small ones, which take more calls than pieces."""
    control = fcntl.fcntl

    def limited(descriptor: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETPIPE_SZ:
            control(descriptor, command, 1 << 13)
            raise PermissionError(errno.EPERM, "the pages for pipes are used up")
        return control(descriptor, command, argument)

    async with ends() as both:
        before = descriptors()
        monkeypatch.setattr(fcntl, "fcntl", limited)
        with pytest.raises(OSError, match="small"):
            both.pipe(MIB)
        assert descriptors() == before


async def test_a_wait_that_cannot_begin_leaves_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no more watches")

    async with ends() as both:
        before = descriptors()
        monkeypatch.setattr(ReadyDescriptors, "to_read", refused)
        await both.pipe(MIB).run()
        assert not both.moved and descriptors() == before


async def test_a_sink_that_fails_raises() -> None:
    async with ends() as both:
        before = descriptors()
        running = asyncio.create_task(both.pipe(64 * MIB).run())
        sending = asyncio.create_task(both.send(bytes(32 * MIB)))
        await until(lambda: both.blocked == [True])
        both.receiver.close()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(running, 30)
        assert len(descriptors()) == len(before) - 1
        sending.cancel()


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("end", ["stop", "cancel"])
async def test_it_can_be_stopped(end: str, blocked: bool) -> None:
    async with ends() as both:
        before = descriptors()
        pipe = both.pipe(64 * MIB)
        running = asyncio.create_task(pipe.run())
        sending = asyncio.create_task(both.send(bytes(32 * MIB))) if blocked else None
        await (until(lambda: both.blocked == [True]) if blocked else asyncio.sleep(0.01))
        if end == "stop":
            pipe.stop()
            await running
        else:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert descriptors() == before
        moved = sum(both.moved)
        if sending is None:
            await both.send(b"more")
        await asyncio.sleep(0.02)
        assert sum(both.moved) == moved
        if sending is not None:
            sending.cancel()


async def test_an_error_of_its_owner_ends_it() -> None:
    async with ends() as both:
        before = descriptors()

        def moved(count: int) -> None:
            raise ValueError(count)

        pipe = KernelPipe(both.source, both.sink, MIB, moved, lambda *_: None)
        running = asyncio.create_task(pipe.run())
        await both.send(b"abc")
        with pytest.raises(ValueError, match="3"):
            await asyncio.wait_for(running, 30)
        assert descriptors() == before


async def test_half_of_the_descriptors_are_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends() as both:
        before = descriptors()
        monkeypatch.setattr(kernel_pipe, "pipe_ceiling", lambda: 3)
        with pytest.raises(OSError, match="too many"):
            both.pipe(MIB)
        assert descriptors() == before
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 4000))
    assert pipe_ceiling() == 500


async def test_a_sink_with_unsent_bytes_or_none_is_no_sink() -> None:
    async with ends() as both:
        assert can_pipe(both.source, both.sink)
        both.sink.write(bytes(32 * MIB))
        assert not can_pipe(both.source, both.sink)
        both.source.abort()
        assert not can_pipe(both.sink, both.source)


async def test_descriptors_that_are_ready_take_turns() -> None:
    """One call back in a turn of the event loop, however many are ready."""
    loop = asyncio.get_running_loop()
    ready, pairs = ready_descriptors_of(loop), [socket.socketpair() for _ in range(3)]
    calls: list[int] = []
    turns: list[int] = []

    def turn() -> None:
        turns.append(len(calls))
        if len(turns) < 20:
            loop.call_soon(turn)

    for number, (ours, theirs) in enumerate(pairs):
        theirs.send(b"x")
        ready.to_read(ours.fileno(), lambda number=number: calls.append(number))
    loop.call_soon(turn)
    await until(lambda: len(turns) == 20)
    for ours, theirs in pairs:
        ready.forget(ours.fileno())
        ours.close()
        theirs.close()
    steps = [after - before for before, after in pairwise(turns)]
    assert set(steps) <= {0, 1} and sum(steps) > 9
    assert set(calls[-9:]) == {0, 1, 2}
    assert ready_descriptors_of(loop) is ready
