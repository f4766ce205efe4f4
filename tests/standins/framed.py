"""Messages with their size before them over plain streams: a client, and a server of GraphPipe on graphpipe's own
convert module. Nothing here knows how we do it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
from graphpipe import convert
from graphpipe.graphpipefb import Error, InferResponse

from tests.standins.graphpipe_server import answer, compute, metadata, text


def framed(message: bytes) -> bytes:
    """A message with its size."""
    return struct.pack("<I", len(message)) + message


async def read_framed(reader: asyncio.StreamReader) -> bytes | None:
    """The next message; None at the end of the stream."""
    head = await reader.read(4)
    if not head:
        return None
    head += await reader.readexactly(4 - len(head))
    return await reader.readexactly(struct.unpack("<I", head)[0])


@dataclass
class FramedClient:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    @asynccontextmanager
    async def to(cls, address: Any) -> AsyncIterator[FramedClient]:
        """A connection to ``address``, something with a host and a port, or a path."""
        if address.path:
            reader, writer = await asyncio.open_unix_connection(address.path)
        else:
            reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def send(self, *messages: bytes) -> None:
        self.writer.write(b"".join(map(framed, messages)))
        await self.writer.drain()

    async def receive(self, secs: float = 5.0) -> bytes | None:
        return await asyncio.wait_for(read_framed(self.reader), secs)

    async def ask(self, message: bytes) -> bytes | None:
        await self.send(message)
        return await self.receive()


@dataclass
class GraphPipeTcpServer:
    """Two inputs give their sum and difference, otherwise every input comes back. The model calls its inputs and
    outputs ``names``. ``requests`` are the inference requests as graphpipe's reader understood them. A config of
    ``fail`` is answered with an error of that ``code``."""

    names: tuple[list[str], list[str]]
    dtype: str = "float32"
    code: int = 2
    requests: list[Any] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GraphPipeTcpServer]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (message := await read_framed(reader)) is not None:
                writer.write(framed(self._answer(message)))
                await writer.drain()
        except ConnectionError:
            pass  # a client that is gone
        finally:
            writer.close()

    def _answer(self, message: bytes) -> bytes:
        asked = convert.deserialize_request(message)
        if asked is None:
            return bytes(convert.serialize_metadata_response(metadata(self.names, self.dtype)))
        self.requests.append(asked)
        if asked.config == b"fail":
            return failure(self.code, "the model said no")
        given = dict(zip(text(asked.input_names) or self.names[0], asked.input_tensors, strict=True))
        answers = dict(zip(self.names[1], compute([given[name] for name in self.names[0]]), strict=True))
        return answer([answers[name] for name in text(asked.output_names) or self.names[1]])


def failure(code: int, words: str) -> bytes:
    """An InferResponse with one error, as the generated code of the schema writes it."""
    builder = flatbuffers.Builder(256)
    message = builder.CreateString(words)
    Error.ErrorStart(builder)
    Error.ErrorAddMessage(builder, message)
    Error.ErrorAddCode(builder, code)
    error = Error.ErrorEnd(builder)
    InferResponse.InferResponseStartErrorsVector(builder, 1)
    builder.PrependUOffsetTRelative(error)
    errors = builder.EndVector()
    InferResponse.InferResponseStart(builder)
    InferResponse.InferResponseAddErrors(builder, errors)
    builder.Finish(InferResponse.InferResponseEnd(builder))
    return bytes(builder.Output())
