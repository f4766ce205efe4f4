"""Connections of callers: what they get, as text that a file can have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from interlingua.protocols.transport.address import Address
from tests.differential.calls import Call
from tests.standins.brpc_frames import Received, read_frame, request_frame

_SECS = 20


def text(data: bytes) -> str:
    """``data`` with a character for each byte."""
    return bytes(data).decode("latin-1")


class Streams:
    """A connection of streams, opened again after its end."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.host, self._address.port)
        return self._streams

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def call(self, *calls: Call) -> list[Any]:
        """The answers to ``calls``, which are sent together."""
        reader, writer = await self._opened()
        writer.write(b"".join(self.written(each, number) for number, each in enumerate(calls, 1)))
        answers = []
        try:
            async with asyncio.timeout(_SECS):
                for each in calls:
                    answers.append(await self.answer(reader, each))
        except (asyncio.IncompleteReadError, ConnectionError) as end:
            answers.append(["ended", text(getattr(end, "partial", b""))])
            await self.close()
        return answers

    def written(self, call: Call, number: int) -> bytes:
        raise NotImplementedError

    async def answer(self, reader: asyncio.StreamReader, call: Call) -> Any:
        raise NotImplementedError


class HttpCaller(Streams):
    def written(self, call: Call, number: int) -> bytes:
        fields = {"Host": "here", **dict(call.headers)}
        if "Transfer-Encoding" in fields:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(call.body), call.body)
        else:
            fields, body = {**fields, "Content-Length": str(len(call.body))}, call.body
        lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
        head = f"{call.verb} {call.place} HTTP/1.{call.minor}\r\n{''.join(lines)}\r\n"
        return head.encode("latin-1") + body

    async def answer(self, reader: asyncio.StreamReader, call: Call) -> Any:
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        if status.startswith("HTTP/1.1 100"):
            return await self.answer(reader, call)
        fields = dict(line.lower().split(": ", 1) for line in lines)
        length = 0 if call.verb == "HEAD" else int(fields.get("content-length", "0"))
        answer = [status, lines, text(await reader.readexactly(length))]
        if fields.get("connection") == "close":
            answer.append(text(await reader.read()))
            await self.close()
        return answer


class FramedCaller(Streams):
    def written(self, call: Call, number: int) -> bytes:
        return len(call.body).to_bytes(4, "little") + call.body

    async def answer(self, reader: asyncio.StreamReader, call: Call) -> Any:
        return text(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "little")))


class BrpcCaller(Streams):
    def written(self, call: Call, number: int) -> bytes:
        timeout = None if call.secs is None else int(1000 * call.secs)
        return request_frame(
            call.place,
            call.body,
            number,
            user_fields=dict(call.headers),
            timeout_ms=timeout,
            attachment=call.attachment,
        )

    async def answer(self, reader: asyncio.StreamReader, call: Call) -> Any:
        found: Received = await read_frame(reader)
        others = {str(key): value for key, value in found.meta.items() if key not in (2, 4, 9)}
        facts = [*found.error, found.user_fields, text(found.payload), others]
        return [found.correlation_id, *(text(each) if isinstance(each, bytes) else each for each in facts)]

    async def call(self, *calls: Call) -> list[Any]:
        """As they come, which is any order."""
        return sorted(await super().call(*calls), key=repr)


class GrpcCaller:
    def __init__(self, address: Address) -> None:
        self._address = str(address)
        self._channel: Any = None

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def call(self, *calls: Call) -> list[Any]:
        if self._channel is None:
            # channels to one address would share a connection
            options = [("grpc.use_local_subchannel_pool", 1)]
            self._channel = grpc.aio.insecure_channel(self._address, options=options)
        return list(await asyncio.gather(*map(self._call, calls)))

    async def _call(self, call: Call) -> Any:
        compression = grpc.Compression.Gzip if ("gzip", "gzip") in call.headers else None
        metadata = tuple((name.lower(), value) for name, value in call.headers if name != "gzip")
        made = self._channel.unary_unary(call.place)(
            call.body, metadata=metadata, timeout=call.secs or _SECS, compression=compression
        )
        try:
            message = text(await made)
        except grpc.aio.AioRpcError:
            message = ""
        facts = [_pairs(await made.initial_metadata()), _pairs(await made.trailing_metadata())]
        return [(await made.code()).name, await made.details(), message, *facts]


def _pairs(metadata: Any) -> list[list[str]]:
    return [[name, value if isinstance(value, str) else text(value)] for name, value in metadata or ()]


CALLERS: dict[str, Any] = {
    "http": HttpCaller,
    "grpc": GrpcCaller,
    "brpc": BrpcCaller,
    "tcp": FramedCaller,
}


@asynccontextmanager
async def caller(transport: str, address: Address) -> AsyncIterator[Any]:
    made = CALLERS[transport](address)
    try:
        yield made
    finally:
        await made.close()


Batch = Sequence[Call]
"""Calls that are sent together."""
