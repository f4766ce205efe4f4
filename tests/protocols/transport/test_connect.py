"""Connections to names with several addresses: Happy Eyeballs (RFC 8305)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.transport import connect as connecting
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.connect import UnsentError, connect, interleaved

NAME = "upstream.test"
V4, V6 = socket.AF_INET, socket.AF_INET6


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)

    async def close(self) -> tuple[Any, ...]:
        sock = self.transport.get_extra_info("socket")
        peer = self.transport.get_extra_info("peername")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        self.transport.close()
        await self.lost
        return tuple(peer)


@contextmanager
def silent() -> Iterator[int]:
    """The port of an address that answers no connection attempt: its backlog is full."""
    with ExitStack() as closing:
        full = closing.enter_context(socket.socket())
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        for _ in range(2):
            waiting = closing.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def refusing_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def named(*places: tuple[int, str, int]) -> Iterator[None]:
    """Gives ``NAME`` addresses: families, hosts and ports."""

    plain = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(host: str, port: int, **options: Any) -> Sequence[Any]:
        if host != NAME:  # uvloop looks up numeric hosts with it
            return await plain(host, port, **options)
        six = (0, 0)
        return [
            (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (at, number, *(six if family == V6 else ())))
            for family, at, number in places
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
        yield


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    here = asyncio.get_running_loop()
    server = await here.create_server(asyncio.Protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def reach(secs: float = 5.0) -> tuple[Any, ...]:
    connection = await connect(Address(NAME, 1), NAME, Connection, secs)
    return await connection.close()


def test_families_alternate() -> None:
    def endpoint(family: int, at: str) -> Any:
        return (family, socket.SOCK_STREAM, 6, (at, 1))

    six = [endpoint(V6, f"::{number}") for number in (1, 2, 3)]
    four = [endpoint(V4, f"127.0.0.{number}") for number in (1, 2)]
    assert interleaved([*six, *four]) == [six[0], four[0], six[1], four[1], six[2]]
    assert interleaved([*four, *six]) == [four[0], six[0], four[1], six[1], six[2]]
    assert interleaved([]) == []


async def test_a_refused_address_costs_no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "ATTEMPT_DELAY_SECS", 60)
    async with listening() as port:
        with named((V6, "::1", refusing_port()), (V4, "127.0.0.1", refusing_port()), (V4, "127.0.0.1", port)):
            assert await reach(30) == ("127.0.0.1", port)


async def test_a_silent_address_costs_the_attempt_delay() -> None:
    async with listening() as port:
        with silent() as nowhere, named((V4, "127.0.0.2", nowhere), (V4, "127.0.0.1", port)):
            began = time.monotonic()
            assert await reach() == ("127.0.0.1", port)
            assert time.monotonic() - began >= connecting.ATTEMPT_DELAY_SECS


async def test_the_first_of_two_that_accept_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "ATTEMPT_DELAY_SECS", 0.0)
    opened: list[socket.socket] = []
    plain = connecting._attempt

    async def noted(loop: asyncio.AbstractEventLoop, endpoint: Any) -> socket.socket:
        opened.append(await plain(loop, endpoint))
        return opened[-1]

    monkeypatch.setattr(connecting, "_attempt", noted)
    async with listening() as port:
        with named(*[(V4, "127.0.0.1", port)] * 4):
            assert await reach() == ("127.0.0.1", port)
            await asyncio.sleep(0.05)
    assert all(sock.fileno() == -1 for sock in opened)


async def test_every_reason_is_named() -> None:
    nobody = [(V4, "127.0.0.1", refusing_port()) for _ in range(2)]
    with named(*nobody), pytest.raises(UnsentError, match="^cannot be reached: Connection refused$"):
        await reach()
    with named(), pytest.raises(UnsentError, match="the name has no address"):
        await reach()


async def test_the_limit_is_that_of_all_attempts() -> None:
    with silent() as nowhere, named(*[(V4, "127.0.0.2", nowhere)] * 5):
        began = time.monotonic()
        with pytest.raises(UnsentError, match="gave no connection within 0.4 seconds"):
            await reach(0.4)
        assert time.monotonic() - began < 2
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancelled_connect_leaves_no_attempt() -> None:
    with silent() as nowhere, named(*[(V4, "127.0.0.2", nowhere)] * 2):
        attempt = asyncio.ensure_future(reach())
        await asyncio.sleep(0.3)
        attempt.cancel()
        await asyncio.wait([attempt])
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_localhost() -> None:
    async with listening() as port:
        connection = await connect(Address("localhost", port), "localhost", Connection, 5)
        assert await connection.close() == ("127.0.0.1", port)


async def test_a_unix_socket(tmp_path: Path) -> None:
    here = asyncio.get_running_loop()
    server = await here.create_unix_server(asyncio.Protocol, str(tmp_path / "s"))
    connection = await connect(Address(path=str(tmp_path / "s")), "", Connection, 5)
    connection.transport.close()
    await connection.lost
    server.close()


async def test_a_unix_socket_whose_server_accepts_late(tmp_path: Path) -> None:
    """A connection above its backlog waits, as over TCP."""
    address = Address(path=str(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as full:
        full.bind(address.path)
        full.listen(0)
        opening = [asyncio.create_task(connect(address, "", Connection, 10)) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert 0 < sum(each.done() for each in opening) < len(opening)
        full.setblocking(False)
        server = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, sock=full)
        for connection in await asyncio.gather(*opening):
            assert not connection.lost.done()
            connection.transport.close()
            await connection.lost
        server.close()


async def test_a_unix_socket_whose_server_accepts_nothing(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as full:
        full.bind(address.path)
        full.listen(0)
        opening = [connect(address, "", Connection, 0.2) for _ in range(5)]
        found = await asyncio.gather(*opening, return_exceptions=True)
        faults = [str(each) for each in found if isinstance(each, UnsentError)]
        assert faults and set(faults) == {"gave no connection within 0.2 seconds"}
        connections = [each for each in found if isinstance(each, Connection)]
        assert len(connections) + len(faults) == len(found)
        for connection in connections:
            connection.transport.close()
            await connection.lost


async def test_a_connection_that_is_cancelled_as_it_opens_is_lost() -> None:
    """Its protocol hears of the end, or a pool would keep it for ever."""
    made: list[Connection] = []

    class Cancelling(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            made.append(self)
            opening.cancel()

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
        opening = asyncio.create_task(connect(address, address.host, Cancelling, 5))
        with pytest.raises(asyncio.CancelledError):
            await opening
        await asyncio.wait_for(made[0].lost, 30)
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(10)
            assert accepted.recv(1) == b""


async def test_a_connection_that_is_reset_at_once_is_none() -> None:
    class Reset(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            asyncio.get_running_loop().call_soon(transport.abort)  # type: ignore[attr-defined]

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        with pytest.raises(UnsentError, match="Connection reset by peer"):
            await connect(address, "127.0.0.1", Reset, 10.0)
