"""Draining: connections close, but for the requests that have arrived on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from interlingua.protocols.transport.listener import ConnectionSet


class Connection(asyncio.Protocol):
    """It closes when it is drained, as one without a request does; ``then`` is what the world does meanwhile."""

    def __init__(self, connections: ConnectionSet[Connection], then: Callable[[], object]) -> None:
        self._connections = connections
        self._then = then
        self.received = b""
        self.before = b""
        """What it had received when it was drained."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self, self.transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def drain(self) -> None:
        self.before = self.received
        self.transport.close()
        self._then()

    @property
    def unsent(self) -> bool:
        return False

    def cut(self) -> None:
        self.transport.abort()

    abort = cut


async def test_what_arrives_while_others_are_drained_is_read_first() -> None:
    loop = asyncio.get_running_loop()
    connections: ConnectionSet[Connection] = ConnectionSet()
    clients: list[socket.socket] = []
    found: list[Connection] = []
    for number in range(2):
        ours, theirs = socket.socketpair()
        clients.append(theirs)
        then = (lambda: clients[1].send(b"a request")) if not number else (lambda: None)
        _, made = await loop.create_connection(lambda then=then: Connection(connections, then), sock=ours)
        found.append(made)
    assert await connections.drain(5) == 0
    assert [each.before for each in found] == [b"", b"a request"]
    assert not connections.open
    for client in clients:
        client.close()


async def test_a_client_that_has_ended_is_drained_at_once() -> None:
    connections: ConnectionSet[Connection] = ConnectionSet()
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: Connection(connections, lambda: None), sock=ours)
    theirs.close()
    assert await connections.drain(5) == 0
    assert not connections.open
