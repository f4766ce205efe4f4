"""A server of baidu_std for tests of clients: it answers what a table says, and may misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.standins.brpc_frames import Received, frame, number, read_frame, text
from tests.waiting import until

Answering = Callable[[Received], Awaitable[bytes | None]]
"""What a method does: the bytes to send, None for nothing."""


def answer_frame(
    correlation_id: int,
    payload: bytes = b"",
    *,
    compress_type: int = 0,
    attachment: bytes = b"",
    attachment_size: int | None = None,
    code: int = 0,
    words: str | bytes = b"",
) -> bytes:
    told = number(1, code) + (text(2, words) if words else b"")
    meta = text(2, told) + number(3, compress_type) + number(4, correlation_id)
    if attachment or attachment_size is not None:
        meta += number(5, len(attachment) if attachment_size is None else attachment_size)
    return frame(meta, payload + attachment)


@dataclass
class BrpcStandinServer:
    """Answers each request by its method's entry in ``methods``, all of them at once."""

    methods: dict[str, Answering] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = 0

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[BrpcStandinServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.drop()
            await until(lambda: not self.open, pace_secs=0)

    def drop(self) -> None:
        """Break every connection."""
        for writer in self.open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        running: set[asyncio.Task[None]] = set()
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the client has gone
                while True:
                    received = await read_frame(reader)
                    self.received.append(received)
                    task = asyncio.ensure_future(self._answer(received, writer))
                    running.add(task)
                    task.add_done_callback(running.discard)
        finally:
            for task in running:
                task.cancel()
            writer.close()
            self.open.discard(writer)

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        answer = await self.methods[received.asked[1]](received)
        if answer is not None:
            writer.write(answer)
