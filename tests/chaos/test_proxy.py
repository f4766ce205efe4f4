"""The proxies of tests end every connection when they stop: what stays open fails a later test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.chaos.proxy import Proxy
from tests.e2e.relay import Relay

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def accepted() -> asyncio.Queue[Stream]:
    """The connections of a server that reads nothing by itself."""
    return asyncio.Queue()


@pytest.fixture
async def port(accepted: asyncio.Queue[Stream]) -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda *stream: accepted.put_nowait(stream), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    while not accepted.empty():
        accepted.get_nowait()[1].transport.abort()


async def made(kind: type[Proxy] | type[Relay], port: int) -> Proxy | Relay:
    proxy = Relay(port) if kind is Relay else Proxy()
    if isinstance(proxy, Proxy):
        proxy.target = port
    await proxy.start()
    return proxy


async def ends(reader: asyncio.StreamReader) -> None:
    """Read to the end, however the connection ends."""
    async with asyncio.timeout(30):
        try:
            while await reader.read(1 << 20):
                pass
        except ConnectionResetError:
            pass


async def test_one_that_waits_for_the_end_of_a_partition(port: int) -> None:
    proxy = await made(Proxy, port)
    assert isinstance(proxy, Proxy)
    proxy.set("partition")
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    await asyncio.sleep(0.05)
    await proxy.stop()
    await ends(reader)
    writer.transport.abort()


@pytest.mark.parametrize("kind", [Proxy, Relay])
async def test_one_whose_server_does_not_read(
    kind: type[Proxy] | type[Relay], port: int, accepted: asyncio.Queue[Stream]
) -> None:
    proxy = await made(kind, port)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(bytes(16 << 20))
    there, back = await accepted.get()
    await asyncio.sleep(0.2)
    async with asyncio.timeout(30):
        await proxy.stop()
    await ends(reader)
    await ends(there)
    for each in (writer, back):
        each.transport.abort()
