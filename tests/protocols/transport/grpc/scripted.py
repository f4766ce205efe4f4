"""A gRPC server that sends exactly what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.protocols.transport.h2.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    Frame,
    Reader,
    block,
    frame,
    message,
    settings,
)

PREFACE_BYTES = 24
ENDED = END_HEADERS | END_STREAM

OK_HEAD = ((":status", "200"), ("content-type", "application/grpc"))
OK_TAIL = (("grpc-status", "0"),)


def headers(stream: int, *more: tuple[str, str]) -> bytes:
    """The headers of an answer."""
    return frame(HEADERS, END_HEADERS, stream, block((*OK_HEAD, *more)))


def trailers(stream: int, *lines: tuple[str, str]) -> bytes:
    """Its trailers."""
    return frame(HEADERS, ENDED, stream, block(lines or OK_TAIL))


def answer(stream: int, content: bytes = b"x") -> bytes:
    """A whole answer."""
    return headers(stream) + frame(DATA, 0, stream, message(content)) + trailers(stream)


@dataclass
class Peer:
    """One connection of a client: the frames that have come on it, and what is written back."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    cutter: Reader = field(default_factory=Reader)
    frames: list[Frame] = field(default_factory=list)

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def next(self, kind: int) -> Frame:
        """The next frame of that kind."""
        while True:
            while self.frames:
                came = self.frames.pop(0)
                if came.kind == kind:
                    return came
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self.frames += self.cutter.feed(data)

    async def call(self) -> Frame:
        """The headers of the next call."""
        return await self.next(HEADERS)


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class Scripted:
    """A running server: its address, and how many connections it has had."""

    address: str = ""
    peers: list[Peer] = field(default_factory=list)


@asynccontextmanager
async def scripted(script: Script, hello: bytes = settings()) -> AsyncIterator[Scripted]:
    """A server that follows ``script`` on every connection, and then reads until the client leaves."""
    server = Scripted()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, len(server.peers))
        server.peers.append(peer)
        try:
            await reader.readexactly(PREFACE_BYTES)
            writer.write(hello)
            await script(peer)
            while await reader.read(1 << 16):
                pass
        except (EOFError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.address = "{}:{}".format(*listening.sockets[0].getsockname())
    try:
        yield server
    finally:
        listening.close()
        for peer in server.peers:
            peer.writer.transport.abort()
        await asyncio.sleep(0)
