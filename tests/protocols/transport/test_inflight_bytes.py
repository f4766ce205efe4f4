"""Bodies above ``max_inflight_bytes`` are refused while they arrive; small ones and those accepted before are
answered."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import struct
from collections.abc import AsyncIterator, Callable

import grpc
import pytest

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.grpc.library import GrpcioServer
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.options import Http2Options
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.servers import SERVERS, ServerSettings
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.framed.test_server import FramedEcho
from tests.protocols.transport.h2.peer import (
    ACK,
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    RawH2,
    block,
    frame,
    head,
)
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho
from tests.protocols.transport.test_load import Engine
from tests.standins.brpc_frames import request_frame
from tests.waiting import until

LARGE, SMALL = bytes(300_000), bytes(1000)
LIMIT = 400_000
MIB, FRAME = 1 << 20, bytes(1 << 14)
TEXT = b"its max_inflight_bytes is 400000"

Message = Callable[[bytes], bytes]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def over_http(body: bytes) -> bytes:
    return b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def over_http_in_chunks(body: bytes) -> bytes:
    pieces = (body[at : at + 50_000] for at in range(0, len(body), 50_000))
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def over_brpc(body: bytes) -> bytes:
    return request_frame("Predict", body)


def over_tcp(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@contextlib.asynccontextmanager
async def serving(transport: str, engine: Engine, load: ListenerLoad) -> AsyncIterator[Address]:
    handlers = {"http": HttpEcho(), "brpc": BrpcEcho(), "tcp": FramedEcho()}
    handlers |= {"brpc/http": handlers["http"], "brpc/grpc": GrpcEcho()}
    server = SERVERS[transport](handlers, LOOPBACK, ServerSettings(1 << 20, engine=engine, load=load))
    try:
        yield await server.start()
    finally:
        await server.stop(0)


async def received(stream: Stream, enough: int) -> bytes:
    """What arrives, up to the end of the connection or more than ``enough`` bytes."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while len(data) <= enough and (piece := await asyncio.wait_for(stream[0].read(1 << 20), 30)):
            data += piece
    return data


@pytest.mark.parametrize(
    ("transport", "engine", "message"),
    [
        ("http", "native", over_http),
        ("http", "library", over_http),
        ("http", "native", over_http_in_chunks),
        ("brpc", "native", over_brpc),
        ("tcp", "native", over_tcp),
    ],
)
async def test_while_a_body_arrives(transport: str, engine: Engine, message: Message) -> None:
    load = ListenerLoad(max_bytes=LIMIT)
    async with serving(transport, engine, load) as address:
        clients = [await asyncio.open_connection(address.host, address.port) for _ in range(3)]
        first, second, third = clients
        whole = message(LARGE)
        first[1].write(whole[:-1000])
        await until(lambda: load.body_bytes > 290_000)
        second[1].write(whole)
        refusal = await received(second, 50)
        assert TEXT in refusal
        assert load.refused == {"max_inflight_bytes": 1}
        assert load.body_bytes < LIMIT
        third[1].write(message(SMALL))
        assert SMALL in await received(third, len(SMALL))
        first[1].write(whole[-1000:])
        assert LARGE in await received(first, len(LARGE))
        for _, writer in clients:
            writer.close()
        await until(lambda: not load.connections and not load.body_bytes)


async def test_a_complete_brpc_call_is_refused_by_its_number() -> None:
    load = ListenerLoad(max_bytes=LIMIT)
    async with serving("brpc", "native", load) as address:
        first, second = [await asyncio.open_connection(address.host, address.port) for _ in range(2)]
        first[1].write(over_brpc(LARGE)[:-1000])
        await until(lambda: load.body_bytes > 290_000)
        load.max_bytes = 1000
        second[1].write(over_brpc(SMALL))  # what is received at first is small
        assert SMALL in await received(second, len(SMALL))
        second[1].write(over_brpc(bytes(20_000)))
        assert b"[E2004]the listener holds" in await received(second, 50)
        for _, writer in (first, second):
            writer.close()
        await until(lambda: not load.connections and not load.body_bytes)


async def test_a_brpc_call_that_is_refused_while_it_arrives_leaves_the_others() -> None:
    load = ListenerLoad(max_bytes=LIMIT)
    async with serving("brpc", "native", load) as address:
        first, second = [await asyncio.open_connection(address.host, address.port) for _ in range(2)]
        first[1].write(over_brpc(LARGE)[:-1000])
        await until(lambda: load.body_bytes > 290_000)
        whole = over_brpc(LARGE)
        second[1].write(whole[:-1000])
        assert TEXT in await received(second, 50)
        second[1].write(whole[-1000:] + over_brpc(SMALL))  # on the same connection
        assert SMALL in await received(second, len(SMALL))
        first[1].write(over_brpc(LARGE)[-1000:])
        assert LARGE in await received(first, len(LARGE))
        assert load.refused == {"max_inflight_bytes": 1}
        for _, writer in (first, second):
            writer.close()
        await until(lambda: not load.connections and not load.body_bytes)


async def test_a_brpc_call_that_is_refused_once_it_is_decompressed_leaves_no_count() -> None:
    load = ListenerLoad(max_bytes=LIMIT)
    async with serving("brpc", "native", load) as address:
        first, second = [await asyncio.open_connection(address.host, address.port) for _ in range(2)]
        first[1].write(over_brpc(LARGE)[:-1000])
        await until(lambda: load.body_bytes > 290_000)
        others = load.body_bytes
        # random bytes: a short message is decompressed before it is counted
        large = random.Random(0).randbytes(50_000) + bytes(250_000)
        second[1].write(request_frame("Predict", gzip.compress(large), compress_type=2))
        assert TEXT in await received(second, 50)
        second[1].write(over_brpc(SMALL))
        assert SMALL in await received(second, len(SMALL))
        assert load.body_bytes < others + len(SMALL)
        for _, writer in (first, second):
            writer.close()
        await until(lambda: not load.connections and not load.body_bytes)


@pytest.mark.parametrize("kind", [GrpcServer, GrpcioServer])
async def test_over_grpc(kind: type[GrpcServer] | type[GrpcioServer]) -> None:
    echo, load = GrpcEcho(), ListenerLoad(max_bytes=LIMIT)
    server = kind(echo, LOOPBACK, max_request_bytes=1 << 20, load=load)
    address = await server.start()
    try:
        with grpc.insecure_channel(str(address)) as channel:
            wait, call = (channel.unary_unary(f"/test.Echo/{name}") for name in ("Wait", "Call"))
            first = asyncio.create_task(asyncio.to_thread(wait, LARGE, timeout=10))
            await until(lambda: bool(echo.served))
            assert load.body_bytes == len(LARGE)
            with pytest.raises(grpc.RpcError) as refused:
                await asyncio.to_thread(call, LARGE, timeout=10)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert TEXT.decode() in refused.value.details()
            assert load.refused == {"max_inflight_bytes": 1}
            assert await asyncio.to_thread(call, SMALL, timeout=10) == SMALL
            echo.release.set()
            assert await first == LARGE
            await until(lambda: not load.body_bytes)
    finally:
        await server.stop(0)


@pytest.mark.parametrize("method", ["Call", "Stream", ""])
async def test_frames_that_arrive_whole(method: str) -> None:
    """Their bytes reach their messages without a call for each frame; gRPC, and HTTP without a ``method``."""
    load = ListenerLoad(max_bytes=3 * MIB)
    http2 = Http2Options(stream_window=8 * MIB, connection_window=32 * MIB)
    settings = ServerSettings(16 * MIB, load=load, http2=http2)
    handlers = {"http": HttpEcho(), "grpc": GrpcEcho()}
    server = SERVERS["grpc" if method else "http"](handlers, LOOPBACK, settings)
    address = await server.start()
    post = [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), (":authority", "x")]
    lead = struct.pack(">BI", 0, 4 * MIB) if method else b""
    sent = 0
    try:
        async with RawH2.to(address) as client:
            for number in (1, 3):
                begin = head(number, f"/test.Echo/{method}")
                if not method:
                    begin = frame(HEADERS, END_HEADERS, number, block(post))
                await client.send(begin, frame(DATA, 0, number, lead + FRAME[len(lead) :]))
            while not load.refused and sent < 6 * MIB:
                # each time, the server receives whole frames alone
                await client.send(
                    frame(DATA, 0, 1, FRAME), frame(DATA, 0, 3, FRAME), frame(PING, 0, 0, bytes(8))
                )
                await client.until(lambda made: made.kind == PING and made.flags & ACK)
                sent += 2 * len(FRAME)
            assert 2.9 * MIB < sent < 4.1 * MIB
            assert load.refused == {"max_inflight_bytes": 1}
        await until(lambda: not load.connections and not load.body_bytes)
    finally:
        await server.stop(0)
