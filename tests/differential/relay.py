"""A relay before an upstream: it keeps what arrives, and ends connections when a scenario says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Cut = Callable[[bytes], tuple[bytes, bool]]
"""What is sent in place of the bytes of an answer, and whether the connection goes on."""


def usual(data: bytes) -> tuple[bytes, bool]:
    return data, True


class Relay:
    """Forwards to ``port``. ``received`` are the bytes of callers; ``cut`` is for the next answer."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        self.received = bytearray()
        self.cut: Cut = usual
        self.open: set[asyncio.Transport] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Caller(self), "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()

    def reset(self) -> None:
        """End every connection, and forget what was received."""
        for each in tuple(self.open):
            each.abort()
        self.connections, self.cut = 0, usual
        self.received.clear()


class _Side(asyncio.Protocol):
    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.relay.open.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        assert self.transport is not None
        self.relay.open.discard(self.transport)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Caller(_Side):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.relay.connections += 1
        self._waiting: list[bytes] = []
        self.other = server = _Server(self.relay)
        server.other = self
        loop = asyncio.get_running_loop()
        self._opening = loop.create_task(self._open(loop, server))

    async def _open(self, loop: asyncio.AbstractEventLoop, server: _Server) -> None:
        await loop.create_connection(lambda: server, "127.0.0.1", self.relay.port)
        assert server.transport is not None and self.transport is not None
        server.transport.writelines(self._waiting)
        if self.transport.is_closing():
            server.transport.close()

    def data_received(self, data: bytes) -> None:
        self.relay.received += data
        assert self.other is not None
        if self.other.transport is None:
            self._waiting.append(data)
        else:
            self.other.transport.write(data)


class _Server(_Side):
    def data_received(self, data: bytes) -> None:
        assert self.other is not None and self.other.transport is not None
        cut, self.relay.cut = self.relay.cut, usual
        sent, goes_on = cut(data)
        self.other.transport.write(sent)
        if not goes_on:
            self.other.transport.close()
