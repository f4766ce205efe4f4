"""A bare relay of HTTP/1.1 on asyncio: the least that a proxy costs on this event loop.

Bytes leave as they came. httptools finds the ends of messages, a pool keeps the upstream's connections. Every
caller has one request in flight, without pipelining.
``python -m benchmarks.bridging.http1_relay UPSTREAM`` prints the address.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools

from interlingua.protocols.transport import loop
from interlingua.runtime.allocator import tune_allocator


class Side(asyncio.Protocol):
    """A connection, and the one on the other side that takes what it receives."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other = self.other, None
        if other is not None:
            other.transport.close()


class Upstream(Side):
    """A connection to the upstream; back in ``pool`` after each answer."""

    def __init__(self, pool: list[Upstream]) -> None:
        super().__init__()
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._done = False

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        caller = self.other
        if caller is None:
            self.transport.close()
            return
        caller.transport.write(data)
        if self._done:
            self._done = False
            self.other = caller.other = None
            if not self.transport.is_reading():  # the caller pauses it no longer
                self.transport.resume_reading()
            self._pool.append(self)

    def on_message_complete(self) -> None:
        self._done = True

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._pool:
            self._pool.remove(self)
        super().connection_lost(exc)


class Caller(Side):
    """A caller's connection."""

    upstream = Upstream

    def __init__(self, address: tuple[str, int], pool: list[Upstream]) -> None:
        super().__init__()
        self._address = address
        self._pool = pool
        self._parser = httptools.HttpRequestParser(self)
        self._early: list[bytes] = []
        self._connecting: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self.other is None and self._connecting is None:
            if self._pool:
                self._take(self._pool.pop())
            else:
                self._connecting = asyncio.ensure_future(self._connect())
        if self.other is None:
            self._early.append(data)
        else:
            self.other.transport.write(data)

    def _take(self, upstream: Upstream) -> None:
        self.other, upstream.other = upstream, self

    async def _connect(self) -> None:
        here = asyncio.get_running_loop()
        _, upstream = await here.create_connection(lambda: self.upstream(self._pool), *self._address)
        self._take(upstream)
        self._connecting = None
        upstream.transport.writelines(self._early)
        self._early.clear()


async def main(address: str, caller: type[Caller] = Caller) -> None:
    """Serve until the process is ended."""
    host, _, port = address.rpartition(":")
    pool: list[Upstream] = []
    here = asyncio.get_running_loop()
    server = await here.create_server(lambda: caller((host, int(port)), pool), "127.0.0.1", 0)
    sys.stdout.write("{}:{}\n".format(*server.sockets[0].getsockname()))
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    tune_allocator()
    loop.run(main(sys.argv[1]))
