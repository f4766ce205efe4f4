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
from interlingua.protocols.transport.load import (
    DESCRIPTORS,
    SPARE_DESCRIPTORS,
    Body,
    ListenerLoad,
    Load,
    descriptor_ceiling,
)
from interlingua.protocols.transport.servers import SERVERS, ServerSettings
from interlingua.schemas import ErrorCode
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho
from tests.protocols.transport.test_listen_backlog import KINDS

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
    """Connections; ``closed`` are those that the server has ended."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, count: int) -> None:
        for _ in range(count):
            self._open.append(await asyncio.open_connection(self._address.host, self._address.port))
            await asyncio.sleep(0.01)

    async def closed(self) -> list[bool]:
        await asyncio.sleep(0.05)
        # an HTTP/2 server sends SETTINGS first
        return [await self._ended(reader) for reader, _ in self._open]

    async def leave(self) -> None:
        for _, writer in self._open:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        self._open.clear()

    @staticmethod
    async def _ended(reader: asyncio.StreamReader) -> bool:
        try:
            async with asyncio.timeout(0.02):
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
        assert await clients.closed() == [False, False, True]
        if (transport, engine) in COUNTED:
            assert (load.connections, load.refused) == (2, {"max_connections": 1})
        await clients.leave()
        await asyncio.sleep(0.05)
        await clients.connect(2)
        assert await clients.closed() == [False, False]
        await clients.leave()
    assert load.connections == 0


@pytest.mark.parametrize(("transport", "engine"), COUNTED)
async def test_connections_of_one_address(transport: str, engine: Engine) -> None:
    load = ListenerLoad(max_connections_per_address=1)
    async with serving(transport, engine, load) as address:
        clients = Clients(address)
        await clients.connect(2)
        assert await clients.closed() == [False, True]
        assert load.refused == {"max_connections_per_address": 1}
        with socket.create_connection((address.host, address.port), source_address=("127.0.0.2", 0)):
            await asyncio.sleep(0.05)
            assert load.connections == 2
        await clients.leave()
        await asyncio.sleep(0.05)
        await clients.connect(1)
        assert await clients.closed() == [False]
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
            assert await clients.closed() == [True, True, True]
        await clients.leave()
    assert load.refused == {DESCRIPTORS: 3}
    (record,) = caplog.records
    assert record.getMessage() == "listener overloaded"
    assert record.__dict__["facts"] == {"listener": "here", "reason": DESCRIPTORS, "count": 1}


def test_the_reserve_is_a_part_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, ceiling in ((1 << 20, (1 << 20) - SPARE_DESCRIPTORS), (64, 48)):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        assert descriptor_ceiling() == ceiling


def test_bytes_count_for_the_listener_and_for_all() -> None:
    total = Load(max_bytes=100)
    one, other = (ListenerLoad("one", total, max_bytes=80), ListenerLoad("other", total))
    first, second, third = Body(one), Body(one), Body(other)
    assert first.grow(50) is None
    assert first.grow(70) is None
    refused = second.grow(11)
    assert refused is not None
    assert (refused.code, refused.retryable) == (ErrorCode.OVERLOADED, True)
    assert refused.message == (
        "the listener holds 70 bytes of requests in flight, its max_inflight_bytes is 80; try again"
    )
    assert second.grow(10) is None
    refused = third.grow(21)
    assert refused is not None
    assert refused.message.startswith("the server holds 80 bytes of requests in flight")
    assert (one.body_bytes, other.body_bytes, total.body_bytes) == (80, 0, 80)
    assert one.refused == other.refused == {"max_inflight_bytes": 1}
    first.release()
    second.release()
    assert (one.body_bytes, total.body_bytes) == (0, 0)
    # alone, a body may have any size
    assert third.grow(1000) is None
    assert first.grow(1) is not None
    third.release()
    assert total.body_bytes == 0
