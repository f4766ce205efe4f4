"""Connections above a limit are closed at once, on every transport and engine, and those before them stay."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.connect import UnsentError, connect
from interlingua.protocols.transport.descriptors import SPARE_OF_CLIENTS, client_ceiling
from interlingua.protocols.transport.load import (
    DESCRIPTORS,
    SMALL_BYTES,
    BodyLoad,
    ListenerLoad,
    Load,
)
from interlingua.protocols.transport.servers import SERVERS, ServerSettings
from interlingua.schemas import ErrorCode
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho
from tests.protocols.transport.test_listen_backlog import KINDS
from tests.waiting import until

Engine = Literal["native", "library"]
COUNTED = [kind for kind in KINDS if kind != ("grpc", "library")]


@contextlib.asynccontextmanager
async def serving(transport: str, engine: Engine, load: ListenerLoad) -> AsyncIterator[Address]:
    handlers = {"http": HttpEcho(), "grpc": GrpcEcho(), "brpc": BrpcEcho(), "tcp": None}
    handlers |= {"brpc/http": handlers["http"], "brpc/grpc": handlers["grpc"]}
    server = SERVERS[transport](handlers, LOOPBACK, ServerSettings(1 << 20, engine=engine, load=load))
    bound = await server.start()
    try:
        yield bound
    finally:
        await server.stop(0)


class Clients:
    """Connections of which the server may end some."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, count: int) -> None:
        for _ in range(count):
            self._open.append(await asyncio.open_connection(self._address.host, self._address.port))
            await asyncio.sleep(0.01)

    async def are_closed(self, *expected: bool) -> None:
        """Whether the server has ended them or soon does."""
        await asyncio.sleep(0.05)
        for (reader, _), ends in zip(self._open, expected, strict=True):
            assert await self._ended(reader, 30 if ends else 0.02) is ends

    async def leave(self) -> None:
        for _, writer in self._open:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        self._open.clear()

    @staticmethod
    async def _ended(reader: asyncio.StreamReader, within_secs: float) -> bool:
        try:
            async with asyncio.timeout(within_secs):
                # an HTTP/2 server sends SETTINGS first
                while await reader.read(1 << 16):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


@pytest.mark.parametrize(("transport", "engine"), KINDS)
async def test_connections_above_the_limit_are_closed(transport: str, engine: Engine) -> None:
    load = ListenerLoad(max_connections=2)
    async with serving(transport, engine, load) as address:
        clients = Clients(address)
        await clients.connect(3)
        await clients.are_closed(False, False, True)
        if (transport, engine) in COUNTED:
            assert (load.connections, load.refused) == (2, {"max_connections": 1})
        await clients.leave()
        await until(lambda: load.connections == 0)
        await asyncio.sleep(0.05 if (transport, engine) in COUNTED else 0.5)
        await clients.connect(2)
        await clients.are_closed(False, False)
        await clients.leave()
    assert load.connections == 0


@pytest.mark.parametrize(("transport", "engine"), COUNTED)
async def test_connections_of_one_address(transport: str, engine: Engine) -> None:
    load = ListenerLoad(max_connections_per_address=1)
    async with serving(transport, engine, load) as address:
        clients = Clients(address)
        await clients.connect(2)
        await clients.are_closed(False, True)
        assert load.refused == {"max_connections_per_address": 1}
        with socket.create_connection((address.host, address.port), source_address=("127.0.0.2", 0)):
            await until(lambda: load.connections == 2)
        await clients.leave()
        await until(lambda: load.connections == 0)
        await clients.connect(1)
        await clients.are_closed(False)
        await clients.leave()


@pytest.mark.parametrize(("transport", "engine"), COUNTED)
async def test_the_last_descriptors_are_not_for_clients(
    transport: str, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    load = ListenerLoad("here", ceiling=0)
    async with serving(transport, engine, load) as address:
        clients = Clients(address)
        with caplog.at_level(logging.WARNING):
            await clients.connect(3)
            await clients.are_closed(True, True, True)
        await clients.leave()
    assert load.refused == {DESCRIPTORS: 3}
    (record,) = caplog.records
    assert record.getMessage() == "listener overloaded"
    assert record.__dict__["facts"] == {"listener": "here", "reason": DESCRIPTORS, "count": 1}


@pytest.mark.parametrize(("limit", "ceiling"), [(1 << 20, (1 << 20) - SPARE_OF_CLIENTS), (64, 48)])
def test_the_reserve_is_a_part_of_the_limit(
    limit: int, ceiling: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert client_ceiling() == ceiling


async def test_the_last_descriptors_are_not_for_upstreams(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ListenerLoad()
    async with serving("tcp", "native", load) as address:
        connection = await connect(address, address.host, asyncio.Protocol, 5)
        assert connection is not None
        monkeypatch.setattr("resource.getrlimit", lambda _: (0, 0))
        with pytest.raises(UnsentError, match="cannot be reached: Too many open files"):
            await connect(address, address.host, asyncio.Protocol, 5)


def test_bytes_count_for_the_listener_and_for_all() -> None:
    unit = SMALL_BYTES
    total = Load(max_bytes=10 * unit)
    one, other = (ListenerLoad("one", total, max_bytes=8 * unit), ListenerLoad("other", total))
    first, second, third = BodyLoad(one), BodyLoad(one), BodyLoad(other)
    assert first.grow(5 * unit) is None
    assert first.grow(6 * unit) is None
    refused = second.grow(2 * unit + 1)
    assert refused is not None
    assert (refused.code, refused.retryable) == (ErrorCode.OVERLOADED, True)
    assert refused.message == (
        f"the listener holds {6 * unit} bytes of requests in flight, its max_inflight_bytes is {8 * unit}; "
        "try again"
    )
    assert second.grow(2 * unit) is None
    refused = third.grow(2 * unit + 1)
    assert refused is not None
    assert refused.message.startswith(f"the server holds {8 * unit} bytes of requests in flight")
    assert (one.body_bytes, other.body_bytes, total.body_bytes) == (8 * unit, 0, 8 * unit)
    assert one.refused == other.refused == {"max_inflight_bytes": 1}
    assert second.grow(unit) is None  # fewer than before
    assert one.body_bytes == 7 * unit
    first.release()
    second.release()
    assert (one.body_bytes, total.body_bytes) == (0, 0)


def test_a_body_is_accepted_alone_and_small_ones_always() -> None:
    load = ListenerLoad(max_bytes=100)
    large, small = BodyLoad(load), BodyLoad(load)
    assert large.grow(1 << 30) is None
    assert small.grow(SMALL_BYTES + 1) is not None
    assert small.grow(SMALL_BYTES) is None
    assert load.body_bytes == (1 << 30) + SMALL_BYTES
    large.release()
    small.release()
    assert load.body_bytes == load.total.body_bytes == 0
