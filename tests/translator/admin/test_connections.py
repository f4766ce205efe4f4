"""Probes of the admin address are answered whatever other clients open there."""

from __future__ import annotations

import asyncio
import contextlib
from http.client import HTTPConnection

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.translator.admin.connections import connection_limit
from interlingua.translator.admin.listener import AdminListener
from tests.protocols.transport.peers import LOOPBACK, HttpEcho

MOST = 20
HALF = b"GET /metrics HTTP/1.1\r\nhost: a\r\n"
SILENT_BODY = HALF + b"content-length: 5\r\n\r\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def probe(address: Address) -> int:
    with contextlib.closing(HTTPConnection(address.host, address.port, timeout=10)) as connection:
        connection.request("GET", "/health/live")
        return connection.getresponse().status


async def still_open(clients: list[Stream], within_secs: float = 0.02) -> int:
    """How many of the connections the server does not close within that time each."""
    count = 0
    for reader, _ in clients:
        try:
            async with asyncio.timeout(within_secs):
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1 << 16):
                        pass
        except TimeoutError:
            count += 1
    return count


async def test_thousands_of_connections_leave_room_for_a_probe() -> None:
    async with AdminListener(LOOPBACK, max_connections=MOST) as admin:
        address = admin.address
        assert address is not None
        clients: list[Stream] = []
        try:
            for number in range(10 * MOST):
                stream = await asyncio.open_connection(address.host, address.port)
                clients.append(stream)
                stream[1].write((b"", HALF, SILENT_BODY)[number % 3])
                if number % MOST == MOST - 1:
                    assert await asyncio.to_thread(probe, address) == 200
            assert await asyncio.to_thread(probe, address) == 200
            assert await still_open(clients[: -2 * MOST], 10) == 0
            assert 0 < await still_open(clients[-MOST:]) <= MOST
        finally:
            for _, writer in clients:
                writer.close()


async def test_a_connection_with_a_request_in_flight_stays() -> None:
    echo, load = HttpEcho(), connection_limit(LOOPBACK, MOST)
    server = HttpServer(echo, LOOPBACK, load=load)
    address = await server.start()
    clients: list[Stream] = []
    try:
        first = await asyncio.open_connection(address.host, address.port)
        clients.append(first)
        first[1].write(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        await asyncio.wait_for(echo.entered.wait(), 30)
        for _ in range(3 * MOST):
            clients.append(await asyncio.open_connection(address.host, address.port))
        clients[-1][1].write(b"GET /last HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await asyncio.wait_for(clients[-1][0].readline(), 30)).startswith(b"HTTP/1.1 200")
        assert load.connections == MOST and load.refused["max_connections"] == 2 * MOST + 1
        echo.release.set()
        assert (await asyncio.wait_for(first[0].readline(), 30)).startswith(b"HTTP/1.1 200")
    finally:
        for _, writer in clients:
            writer.close()
        await server.stop(0)
