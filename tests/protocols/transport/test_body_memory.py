"""Large bodies are received in memory from the listener's load, and every end of a request frees it at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.h2.frames import PREFACE
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.servers import SERVERS, ServerSettings
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.framed.test_server import FramedEcho
from tests.protocols.transport.h2.peer import DATA, frame, head, message, settings, window_update
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho
from tests.standins.brpc_frames import request_frame
from tests.waiting import until

WINDOWS = settings((4, 1 << 20)) + window_update(0, 1 << 20)
"""The client takes whole answers."""

BODY = b"wait for it" + bytes(range(256)) * 1200


def over_http(method: str) -> bytes:
    path = {"Call": "/echo", "Wait": "/wait"}[method]
    return f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY


def over_grpc(method: str) -> bytes:
    whole = message(BODY)
    pieces = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
    data = (frame(DATA, piece is pieces[-1], 1, piece) for piece in pieces)
    return PREFACE + WINDOWS + head(1, f"/test.Echo/{method}") + b"".join(data)


def over_brpc(method: str) -> bytes:
    return request_frame({"Call": "Predict", "Wait": "Wait"}[method], BODY)


def over_tcp(method: str) -> bytes:
    body = BODY if method == "Wait" else BODY[1:]
    return struct.pack("<I", len(body)) + body


class Memory:
    """What has been allocated, by size."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._blocks: list[weakref.ref[np.ndarray[tuple[int], np.dtype[np.uint8]]]] = []

    def allocate(self, size: int) -> memoryview:
        block = np.empty(size, np.uint8)
        self.sizes.append(size)
        self._blocks.append(weakref.ref(block))
        return block.data

    @property
    def held(self) -> int:
        return sum(block() is not None for block in self._blocks)


class World:
    """A server of each transport at a time, its handlers, and the memory of its bodies."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.http, self.grpc, self.brpc, self.tcp = HttpEcho(), GrpcEcho(), BrpcEcho(), FramedEcho()
        self.handlers = {"http": self.http, "grpc": self.grpc, "brpc": self.brpc, "tcp": self.tcp}
        self.handlers |= {"brpc/http": HttpEcho(), "brpc/grpc": GrpcEcho()}

    @contextlib.asynccontextmanager
    async def serving(self, transport: str) -> AsyncIterator[Address]:
        load = ListenerLoad()
        load.allocate = self.memory.allocate
        server = SERVERS[transport](self.handlers, LOOPBACK, ServerSettings(1 << 20, load=load))
        try:
            yield await server.start()
        finally:
            await server.stop(0)

    @property
    def seen(self) -> list[list[Any]]:
        return [self.http.served, self.grpc.served, self.brpc.served, self.tcp.requests]

    def is_freed(self) -> bool:
        for seen in (*self.seen, self.http.heads):
            seen.clear()
        return not self.memory.held


TRANSPORTS = pytest.mark.parametrize(
    ("transport", "request_of"),
    [("http", over_http), ("grpc", over_grpc), ("brpc", over_brpc), ("tcp", over_tcp)],
)


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Memory that only the collector frees would pile up until it runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@TRANSPORTS
async def test_an_answered_request_leaves_nothing(transport: str, request_of: Callable[[str], bytes]) -> None:
    world = World()
    async with world.serving(transport) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(request_of("Call"))
        await until(lambda: any(world.seen))
        assert max(world.memory.sizes) >= len(BODY) - 1
        received = 0
        while received < len(BODY):
            received += len(await asyncio.wait_for(reader.read(1 << 20), 20))
        # the connection is open
        await until(world.is_freed)
        writer.close()
        await writer.wait_closed()


@TRANSPORTS
@pytest.mark.parametrize("complete", [False, True])
async def test_a_cut_connection_leaves_nothing(
    transport: str, request_of: Callable[[str], bytes], complete: bool
) -> None:
    world = World()
    async with world.serving(transport) as address:
        _, writer = await asyncio.open_connection(address.host, address.port)
        whole = request_of("Wait")
        writer.write(whole if complete else whole[:-1000])
        await until(lambda: any(world.seen) if complete else bool(world.memory.held))
        # with a reset: half a connection could still take the answer
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await until(world.is_freed)


async def test_a_call_that_ends_while_its_message_arrives_leaves_nothing() -> None:
    world = World()
    async with world.serving("grpc") as address:
        _, writer = await asyncio.open_connection(address.host, address.port)
        begun = head(1, "/test.Echo/Call", ("grpc-timeout", "200m"))
        writer.write(PREFACE + WINDOWS + begun + frame(DATA, True, 1, message(BODY))[:100_000])
        await until(lambda: bool(world.memory.held))
        await until(world.is_freed)  # the connection is open
        writer.close()
        await writer.wait_closed()
