"""A connection whose input takes long lets others go on."""

from __future__ import annotations

import asyncio
import resource
import socket
from time import monotonic
from typing import Any

import pytest

from interlingua.protocols.transport import turns
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.transport.direct_body import DirectBody
from interlingua.protocols.transport.framed import server as framed_server
from interlingua.protocols.transport.framed.splitter import FrameSplitter
from interlingua.protocols.transport.h2 import frame_reader
from interlingua.protocols.transport.http1 import body as http1_body
from interlingua.protocols.transport.received import SharedReceiver, shared_space
from interlingua.protocols.transport.turns import RECEIVE_BYTES, TURN_BYTES, Turn
from interlingua.protocols.wire import BrpcRequest, GrpcRequest, HttpCall
from tests.protocols.transport.brpc.test_server import serving
from tests.protocols.transport.framed.test_server import FramedEcho
from tests.protocols.transport.peers import LOOPBACK, HttpEcho
from tests.protocols.transport.peers import serving as http_serving
from tests.standins.brpc_frames import SERVICE


class Transport:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


class Owner:
    """A connection with ``left`` parts of input to be handled, each in a turn."""

    def __init__(self, left: int, log: list[Owner]) -> None:
        self.transport: Any = Transport()
        self.left = left
        self.log = log
        self.turn = Turn(asyncio.get_running_loop(), self.transport, self.go_on)

    def go_on(self) -> None:
        self.log.append(self)
        self.left -= 1
        if self.left > 0:
            self.turn.end()


async def turned(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_reading_goes_on_after_the_turn_if_it_is_wanted() -> None:
    owner = Owner(2, [])
    owner.turn.end()
    owner.turn.end()
    assert (owner.turn.waiting, owner.transport.calls) == (True, ["pause"])
    await turned(1)
    assert (owner.turn.waiting, owner.transport.calls) == (True, ["pause"])
    await turned(1)
    assert (owner.turn.waiting, owner.transport.calls) == (False, ["pause", "resume"])
    assert len(owner.log) == 2


async def test_both_the_owner_and_its_turn_must_permit_to_read() -> None:
    owner = Owner(1, [])
    owner.turn.read(False)
    owner.turn.end()
    await turned(2)
    assert owner.transport.calls == ["pause"]
    owner.turn.end()
    owner.turn.read(True)
    assert owner.transport.calls == ["pause"]
    await turned(2)
    assert owner.transport.calls == ["pause", "resume"]


async def test_a_connection_that_closes_meanwhile_is_left_alone() -> None:
    owner = Owner(1, [])
    owner.turn.end()
    owner.transport.closing = True
    await turned(2)
    owner.turn.end()
    await turned(2)
    assert (owner.transport.calls, owner.log) == (["pause"], [])


async def test_connections_go_on_in_order_and_one_in_each_turn_of_the_loop() -> None:
    log: list[Owner] = []
    owners = [Owner(3, log) for _ in range(10)]
    for owner in owners:
        owner.turn.end()
    most = 0
    while len(log) < 30:
        before = len(log)
        await turned(1)
        most = max(most, len(log) - before)
    assert log == owners * 3
    assert most == 1


async def switches_while_waiting(count: int) -> int:
    """How often the thread of the loop sleeps while so many connections always wait."""
    owners = [Owner(1 << 30, []) for _ in range(count)]
    for owner in owners:
        owner.turn.end()
    until, before = monotonic() + 0.05, resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    while monotonic() < until:
        await asyncio.sleep(0)
    slept = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
    for owner in owners:
        owner.left = 0
    await turned(count)
    return slept


async def test_threads_run_while_connections_wait() -> None:
    idle, busy = [await switches_while_waiting(count) for count in (0, 1)]
    assert busy > idle


async def test_a_turn_has_fewer_bytes_while_another_connection_waits() -> None:
    alone, other = Owner(1, []), Owner(1, [])
    alone.turn.received(TURN_BYTES - 1)
    assert not alone.turn.waiting
    alone.turn.received(1)
    assert (alone.turn.waiting, alone.turn.contended, other.turn.contended) == (True, False, True)
    other.turn.received(RECEIVE_BYTES - 1)
    assert not other.turn.waiting
    other.turn.received(1)
    assert (other.turn.waiting, alone.turn.contended) == (True, True)
    await turned(2)
    other.turn.received(TURN_BYTES - 1)
    assert not other.turn.waiting


async def test_a_connection_that_fails_does_not_stop_the_others() -> None:
    loop, failed = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    log: list[Owner] = []
    broken, *others = (Owner(1, log) for _ in range(4))
    broken.left = -1
    broken.turn._go_on = lambda: 1 // 0
    for owner in (broken, *others):
        owner.turn.end()
    await turned(5)
    loop.set_exception_handler(None)
    assert [type(each) for each in failed] == [ZeroDivisionError]
    assert log == others


@pytest.mark.parametrize("transport", ["http", "grpc", "brpc"])
async def test_nothing_is_lost_where_every_turn_ends_early(
    monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    for name in ("TURN_BYTES", "RECEIVE_BYTES"):
        monkeypatch.setattr(turns, name, 1)
    monkeypatch.setattr(frame_reader, "TURN_FRAMES", 1)
    monkeypatch.setattr(http1_body, "TURN_CHUNKS", 1)
    async with serving() as here:
        client: Any = client_of(transport)(Url(here.server.address))
        try:
            for nbytes in (10, 100_000, 4_000_000):
                body = bytes(range(250)) * (nbytes // 250) + bytes(nbytes % 250)
                call = {
                    "http": lambda body=body: HttpCall("POST", "/echo", parts=(body,)),
                    "grpc": lambda body=body: GrpcRequest("/test.Echo/Call", body),
                    "brpc": lambda body=body: BrpcRequest(SERVICE, "Predict", body),
                }[transport]
                for answer in await asyncio.gather(*(client.send(call()) for _ in range(5))):
                    assert (answer.body if transport == "http" else answer.message) == body
        finally:
            await client.close()


class Body:
    """A body of 64 MiB that is arriving."""

    def body_buffer(self) -> memoryview:
        return memoryview(bytearray(64 << 20))


def test_one_system_call_receives_a_bounded_part_of_a_body() -> None:
    large = Body().body_buffer()
    splitter = FrameSplitter(64 << 20)
    splitter.space()[:4] = (60 << 20).to_bytes(4, "little")
    splitter.received(4)
    assert splitter.next() is None
    receiver = SharedReceiver(shared_space())
    receiver.direct = large
    framed = framed_server._Connection(framed_server.FramedServer(FramedEcho(), LOOPBACK))
    framed._splitter = splitter
    owners: list[asyncio.BufferedProtocol] = [DirectBody(Body()), receiver, framed]  # type: ignore[arg-type]
    for owner in owners:
        assert 1 << 16 <= len(owner.get_buffer(-1)) <= RECEIVE_BYTES


class Receiver(SharedReceiver):
    """A connection to which more has arrived than it handles at once, if it is ``flooded``."""

    flooded = False

    def direct_received(self, count: int) -> None:
        assert self.direct is not None
        self.direct = self.direct[count:] or None

    def data_received(self, data: object) -> None:
        if self.flooded:
            self.end_turn()


async def test_a_connection_receives_more_after_a_full_buffer_and_little_after_a_flood() -> None:
    receiver = Receiver(shared_space())
    receiver.turn = Owner(1, []).turn
    sizes = []
    for _ in range(8):
        sizes.append(len(receiver.get_buffer(-1)))
        receiver.buffer_updated(sizes[-1])
    assert sizes == [min(sizes[0] << n, RECEIVE_BYTES) for n in range(8)]
    assert sizes[0] <= 1 << 14
    receiver.flooded = True
    for _ in range(3):
        receiver.buffer_updated(len(receiver.get_buffer(-1)))
        assert len(receiver.get_buffer(-1)) == sizes[0]


async def test_little_is_copied_between_bytes_that_arrive_in_their_place() -> None:
    receiver = Receiver(shared_space())
    receiver.turn = Owner(1, []).turn

    def receive() -> int:
        count = len(receiver.get_buffer(-1))
        receiver.buffer_updated(count)
        return count

    while receive() < RECEIVE_BYTES:
        pass
    for _ in range(3):
        receiver.direct = memoryview(bytearray(RECEIVE_BYTES + 100_000))
        assert (receive(), receive()) == (RECEIVE_BYTES, 100_000)
        assert receive() <= 1 << 16
    assert receive() > 1 << 16


@pytest.mark.usefixtures("engine")
async def test_others_have_their_turns_between_small_chunks() -> None:
    """However many of them a system call has received."""
    chunks = b"1\r\nx\r\n" * 15_000 + b"0\r\n\r\n"
    turned = 0

    async def others() -> None:
        nonlocal turned
        while True:
            await asyncio.sleep(0)
            turned += 1

    loop = asyncio.get_running_loop()
    async with http_serving(HttpEcho()) as server:
        with socket.create_connection((server.address.host, server.address.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(
                client, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            await asyncio.sleep(0.05)
            await loop.sock_sendall(client, chunks)
            counting = asyncio.create_task(others())
            async with asyncio.timeout(20):
                answer = await loop.sock_recv(client, 4096)
            counting.cancel()
    assert answer.startswith(b"HTTP/1.1 200 ")
    print(f"{turned} turns")
    assert turned >= 15
