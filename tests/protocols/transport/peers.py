"""Handlers to serve, and a raw HTTP client that sends exactly what a test says."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcHandler, GrpcRequest, HttpAnswer, HttpRequest
from interlingua.schemas import InferenceError

LOOPBACK = parse_address("127.0.0.1:0")

ENGINE: Literal["native", "library"] = "native"
"""Which engine HTTP is served on."""

CLIENT_ENGINE = "native"
"""The engine of HTTP clients."""


def stalling(secs: float, idle_secs: float | None = None) -> Timeouts:
    """Every timeout but that of idle connections, for bodies and answers at any rate."""
    return Timeouts(idle_secs, secs, secs, secs, 0)


@dataclass
class HttpEcho:
    """Answers every POST with its body, and whatever ``answers`` holds for a path.

    Requests to ``/wait`` wait for ``release``; ``/refused`` is refused from the head alone.
    """

    max_body_bytes: int | None = None
    answers: dict[str, HttpAnswer] = field(default_factory=dict)
    heads: list[HttpRequest] = field(default_factory=list)
    served: list[HttpRequest] = field(default_factory=list)
    refused: list[InferenceError] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        self.heads.append(request)
        request.context.cancel.on_cancel(self.cancelled.set)
        request.max_body_bytes = self.max_body_bytes
        return HttpAnswer(404, (), (b"no such path",)) if request.path == "/refused" else None

    def prefix(self, request: HttpRequest) -> int | None:
        return None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        self.served.append(request)
        self.entered.set()
        if request.path == "/wait":
            await self.release.wait()
        if request.path == "/raise":
            raise RuntimeError("a handler that breaks its promise")
        return self.answers.get(request.path) or HttpAnswer(200, (("x-kind", "echo"),), (request.body,))

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        self.refused.append(error)
        return HttpAnswer(400, (("x-code", error.code.name),), (error.message.encode(),))


@dataclass
class GrpcEcho(GrpcHandler):
    """Answers ``/test.Echo/Call``, and every message of ``/test.Echo/Stream``, with the message itself;
    ``answer`` replaces it. ``/test.Echo/Wait`` waits for ``release``."""

    answer: GrpcAnswer | None = None
    served: list[GrpcRequest] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def offers(self, method: str) -> Literal["unary", "stream"] | None:
        if method == "/test.Echo/Stream":
            return "stream"
        return "unary" if method in ("/test.Echo/Call", "/test.Echo/Wait", "/test.Echo/Raise") else None

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        self.served.append(request)
        self.entered.set()
        request.context.cancel.on_cancel(self.cancelled.set)
        if request.method.endswith("Wait"):
            await self.release.wait()
        if request.method.endswith("Raise"):
            raise RuntimeError("a handler that breaks its promise")
        return self.answer or GrpcAnswer(request.message)

    async def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        call.context.cancel.on_cancel(self.cancelled.set)
        async for message in messages:
            self.entered.set()
            if message == b"wait":
                await self.release.wait()
            yield self.answer or GrpcAnswer(message)


@asynccontextmanager
async def serving(
    handler: HttpEcho, address: Address = LOOPBACK, **options: Any
) -> AsyncIterator[HttpServer]:
    """A started server, stopped without grace at the end."""
    server = HttpServer(handler, address, engine=ENGINE, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@dataclass
class Reply:
    """An answer as it stood on the wire, its body de-chunked."""

    line: str
    headers: dict[str, str]
    body: bytes
    chunks: int = 0

    @property
    def status(self) -> int:
        return int(self.line.split()[1])


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection at once, with what is unsent."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class RawHttp:
    """A connection that sends bytes as they are and reads one answer at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @asynccontextmanager
    async def to(cls, address: Address) -> AsyncIterator[RawHttp]:
        if address.path:
            reader, writer = await asyncio.open_unix_connection(address.path)
        else:
            reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def send(self, *parts: Buffer) -> None:
        for part in parts:
            self.writer.write(part)
        await self.writer.drain()

    async def post(self, path: str, body: bytes = b"", *headers: str, version: str = "1.1") -> Reply:
        """Send a POST and read its answer."""
        await self.send(post(path, body, *headers, version=version))
        return await self.reply()

    async def reply(self, *, head_only: bool = False) -> Reply:
        """Read one answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, value in (text.split(": ", 1) for text in lines)}
        reply = Reply(line, headers, b"")
        if head_only or reply.status in (100, 204, 304):
            return reply
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                reply.body += await self.reader.readexactly(size)
                reply.chunks += 1
                assert await self.reader.readexactly(2) == b"\r\n"
            assert await self.reader.readexactly(2) == b"\r\n"
        elif "content-length" in headers:
            reply.body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            reply.body = await self.reader.read()
        return reply

    async def ended(self) -> bool:
        """Whether the server closes the connection without another byte."""
        return await asyncio.wait_for(self.reader.read(), 30) == b""


def post(path: str, body: bytes = b"", *headers: str, version: str = "1.1") -> bytes:
    """A POST with its Content-Length."""
    lines = "".join(f"{line}\r\n" for line in headers)
    return (
        f"POST {path} HTTP/{version}\r\nHost: x\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body
    )
