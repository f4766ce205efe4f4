"""A client of baidu_std, as the original's: one connection, any number of calls on it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.standins.brpc_frames import Received, read_frame, request_frame


class BrpcStandinClient:
    """Calls by correlation id; ``order`` is that in which replies came. Bytes may be sent as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.order: list[int] = []

    @classmethod
    @asynccontextmanager
    async def to(cls, host: str, port: int = 0) -> AsyncIterator[BrpcStandinClient]:
        """A connection to a host and a port, or to a unix socket."""
        opening = asyncio.open_connection(host, port) if port else asyncio.open_unix_connection(host)
        reader, writer = await opening
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> Received:
        received = await asyncio.wait_for(read_frame(self.reader), 20)
        self.order.append(received.correlation_id)
        return received

    async def call(self, method: str, payload: bytes = b"", **options: Any) -> Received:
        """One call, and the reply to it."""
        await self.send(request_frame(method, payload, **options))
        return await self.receive()

    async def ended(self) -> bool:
        """Whether the server closes the connection without another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(), 20) == b""
        except ConnectionResetError:
            return True
