"""What the clients tell of a connection that fails: whether anything of the request may have gone out."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import (
    BrpcRequest,
    ConnectionFailedError,
    FramedCall,
    GrpcRequest,
    HttpCall,
)
from interlingua.schemas import Context, ErrorCode, InferenceError

each_client = pytest.mark.parametrize(("transport", "engine"), CLIENTS)
each_grpc_client = pytest.mark.parametrize(
    "engine", [engine for transport, engine in CLIENTS if transport == "grpc"]
)

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""The frame with which an HTTP/2 server begins."""


def request(transport: str, seconds: float = 5.0) -> Any:
    context = Context(deadline=time.monotonic() + seconds)
    if transport == "http":
        return HttpCall("POST", "/v2", parts=(b"x" * 64,), context=context)
    if transport == "grpc":
        return GrpcRequest("/a.B/C", b"x" * 64, context=context)
    if transport == "tcp":
        return FramedCall(parts=(b"\x40\0\0\0", b"x" * 64), context=context)
    return BrpcRequest("a.B", "C", b"x" * 64, context=context)


@asynccontextmanager
async def behaving(
    transport: str, behaviour: Behaviour, begun: list[bytes] | None = None
) -> AsyncIterator[str]:
    """A server that reads the beginning of a request, kept in ``begun``, and then does as ``behaviour`` says."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if transport == "grpc":
                writer.write(SETTINGS)
            first = await reader.read(1 << 16)
            if begun is not None:
                begun.append(first)
            if transport == "grpc":  # so far it was the preface
                await asyncio.sleep(0.1)
            await behaviour(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


async def half_closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write_eof()
    await asyncio.sleep(0.5)


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def babbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\1\2garbage\r\n\r\n" * 100)
    await asyncio.sleep(0.5)


async def failure(transport: str, engine: str, url: str, **options: float) -> ConnectionFailedError:
    client: Any = CLIENTS[transport, engine](parse_url(url), ClientOptions(**options))  # type: ignore[arg-type]
    try:
        with pytest.raises(ConnectionFailedError) as caught:
            await client.send(request(transport))
    finally:
        await client.close()
    assert url in caught.value.message
    return caught.value


@each_client
async def test_nothing_is_sent_where_no_server_is(transport: str, engine: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refusing = "{}:{}".format(*taken.getsockname())
    for url in (refusing, f"unix:{tmp_path}/nobody"):
        fault = await failure(transport, engine, url)
        assert (fault.code, fault.sent) == (ErrorCode.UNAVAILABLE, False)


@each_client
async def test_nothing_has_gone_out_where_no_connection_comes_about(transport: str, engine: str) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        fault = await failure(
            transport, engine, "{}:{}".format(*full.getsockname()), connect_timeout_secs=0.3
        )
    assert (fault.code, fault.sent) == (ErrorCode.UNAVAILABLE, False)


@pytest.mark.parametrize("behaviour", [closing, half_closing, resetting])
@each_client
async def test_what_breaks_off_may_have_been_done(transport: str, engine: str, behaviour: Behaviour) -> None:
    async with behaving(transport, behaviour) as url:
        fault = await failure(transport, engine, url)
    assert (fault.code, fault.sent) == (ErrorCode.UNAVAILABLE, True)


@pytest.mark.parametrize(("transport", "engine"), [each for each in CLIENTS if each[0] in ("http", "brpc")])
async def test_what_is_not_the_transport_may_have_been_done(transport: str, engine: str) -> None:
    async with behaving(transport, babbling) as url:
        fault = await failure(transport, engine, url)
    assert (fault.code, fault.sent) == (ErrorCode.BAD_UPSTREAM, True)


@asynccontextmanager
async def refusing(engine: str, words: str) -> AsyncIterator[Any]:
    """A gRPC client of a server that says that it is UNAVAILABLE."""

    async def refuse(message: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, words)

    class Everything(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(refuse)

    server = grpc.aio.server(handlers=(Everything(),))
    client: Any = CLIENTS["grpc", engine](parse_url(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"))
    await server.start()
    try:
        yield client
    finally:
        await client.close()
        await server.stop(None)


@each_grpc_client
async def test_a_status_of_the_servers_own_is_an_answer(engine: str) -> None:
    words = "upstream 'b': failed to connect to all addresses"
    async with refusing(engine, words) as client:
        answer = await client.send(request("grpc"))
    assert (answer.code, answer.details) == (14, words)


async def test_a_server_with_grpcios_words_may_have_done_something() -> None:
    async with refusing("library", "failed to connect to all addresses; last error: none") as client:
        with pytest.raises(ConnectionFailedError, match="cannot be reached") as caught:
            await client.send(request("grpc"))
    assert caught.value.sent


@each_client
async def test_a_connection_that_fell_silent_is_not_used_again(transport: str, engine: str) -> None:
    accepted: list[Any] = []

    class Silent(asyncio.Protocol):
        def connection_made(self, writer: asyncio.BaseTransport) -> None:
            accepted.append(writer)
            if transport == "grpc":
                writer.write(SETTINGS)  # type: ignore[attr-defined]

    server = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0)
    client: Any = CLIENTS[transport, engine](parse_url("{}:{}".format(*server.sockets[0].getsockname())))
    try:
        for expected in (1, 2):
            with pytest.raises(InferenceError) as caught:
                await client.send(request(transport, 0.3))
            assert (caught.value.code, len(accepted)) == (ErrorCode.DEADLINE_EXCEEDED, expected)
    finally:
        await client.close()
        for each in accepted:
            each.abort()
        server.close()
        await asyncio.sleep(0)


@each_client
async def test_a_host_that_has_been_looked_up_keeps_its_name(transport: str, engine: str) -> None:
    seen: list[bytes] = []

    async def reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            seen.append(chunk)

    async with behaving(transport, reading, seen) as url:
        port = url.rpartition(":")[2]
        client: Any = CLIENTS[transport, engine](
            parse_url(f"nowhere.invalid:{port}"), ClientOptions(at="127.0.0.1")
        )
        with pytest.raises(InferenceError, match=f"nowhere.invalid:{port}"):
            await client.send(request(transport, 0.4))
        await client.close()
        await asyncio.sleep(0.1)
    assert transport in ("brpc", "tcp") or f"nowhere.invalid:{port}".encode() in b"".join(seen)
