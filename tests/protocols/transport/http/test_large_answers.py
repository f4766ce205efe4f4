"""What the engines hand to a transport at once."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from interlingua.protocols.transport.http.native import NativeEngine
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.wire import HttpAnswer
from tests.protocols.transport.peers import LOOPBACK, HttpEcho, post
from tests.waiting import until

MIB = 1 << 20


async def test_a_large_answer_is_written_in_slices(engine: str) -> None:
    """A write takes as long as a fast client reads: other clients wait for all of it."""
    body = bytes(range(256)) * (24 * MIB // 256)
    handler = HttpEcho(answers={"/large": HttpAnswer(200, (), (body[: MIB // 2], body[MIB // 2 :]))})
    server = HttpServer(handler, LOOPBACK, engine=engine)
    address = await server.start()
    loop = asyncio.get_running_loop()
    try:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.setblocking(False)
            await loop.sock_connect(client, (address.host, address.port))
            await loop.sock_sendall(client, post("/large"))
            async with asyncio.timeout(20):
                await until(lambda: _buffered(server))
                assert _buffered(server) <= 4 * MIB
                received = bytearray()
                while len(received) - received.find(b"\r\n\r\n") < len(body) + 4:
                    received += await loop.sock_recv(client, MIB)
            assert received.partition(b"\r\n\r\n")[2] == body
    finally:
        await server.stop(0)


def _buffered(server: HttpServer) -> int:
    """How much the transports of ``server`` hold that their clients have not taken."""
    engine: Any = server._engine
    if isinstance(engine, NativeEngine):
        transports = [each._transport for each in engine._connections.open]
    else:
        transports = [each.transport for each in engine._server.connections]
    return sum(each.get_write_buffer_size() for each in transports if each is not None)
