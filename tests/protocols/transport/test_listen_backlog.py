"""Clients that connect while the event loop is busy wait in the kernel: none is lost, on any transport."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import pytest

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.servers import SERVERS, ServerSettings
from interlingua.translator.admin.listener import AdminListener
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho
from tests.standins.brpc_frames import read_frame, request_frame

SOMAXCONN = int(Path("/proc/sys/net/core/somaxconn").read_text())
CLIENTS = min(1000, SOMAXCONN)
CONNECT_SECS = 10.0

KINDS = [
    ("http", "native"),
    ("http", "library"),
    ("grpc", "native"),
    ("grpc", "library"),
    ("brpc", "native"),
    ("tcp", "native"),
]


@contextlib.asynccontextmanager
async def serving(
    transport: str, engine: Literal["native", "library"], address: Address = LOOPBACK
) -> AsyncIterator[Address]:
    handlers = {"http": HttpEcho(), "grpc": GrpcEcho(), "brpc": BrpcEcho(), "tcp": None}
    handlers |= {"brpc/http": handlers["http"], "brpc/grpc": handlers["grpc"]}
    server = SERVERS[transport](handlers, address, ServerSettings(1 << 20, engine=engine))
    bound = await server.start()
    try:
        yield bound
    finally:
        await server.stop(0)


@contextlib.contextmanager
def connected(address: Address, count: int) -> Iterator[list[socket.socket]]:
    """``count`` connections, made while this thread, and so the event loop, does nothing else. Fails unless
    each is complete within ``CONNECT_SECS``; the kernel retries what a full queue drops in longer and
    longer intervals, and a unix socket refuses at once."""
    with contextlib.ExitStack() as stack:
        family = socket.AF_UNIX if address.path else socket.AF_INET
        sockets = [stack.enter_context(socket.socket(family)) for _ in range(count)]
        poll = select.poll()
        for sock in sockets:
            sock.setblocking(False)
            code = sock.connect_ex(address.path or (address.host, address.port))
            assert code in (0, errno.EINPROGRESS), errno.errorcode[code]
            if code:
                poll.register(sock, select.POLLOUT)
        waiting = {sock.fileno() for sock in sockets if not _is_connected(sock)}
        until = time.monotonic() + CONNECT_SECS
        while waiting and time.monotonic() < until:
            for number, _ in poll.poll(100):
                poll.unregister(number)
                waiting.discard(number)
        assert not waiting, f"{len(waiting)} of {count} connections are not complete"
        yield sockets


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("transport", "engine"), KINDS)
async def test_every_listener_queues_many_connections(
    transport: str, engine: Literal["native", "library"]
) -> None:
    async with serving(transport, engine) as address:
        with connected(address, CLIENTS):
            await asyncio.sleep(0)


@pytest.mark.parametrize(("transport", "engine"), [kind for kind in KINDS if kind != ("grpc", "library")])
async def test_a_unix_socket_queues_as_many(
    transport: str, engine: Literal["native", "library"], tmp_path: Path
) -> None:
    async with serving(transport, engine, parse_address(f"unix:{tmp_path}/socket")) as address:
        with connected(address, CLIENTS):
            await asyncio.sleep(0)


async def test_the_admin_address_queues_as_many() -> None:
    async with AdminListener(LOOPBACK) as admin:
        assert admin.address is not None
        with connected(admin.address, CLIENTS):
            await asyncio.sleep(0)


async def test_a_thousand_brpc_clients_at_once_lose_no_call() -> None:
    async def call(sock: socket.socket, number: int) -> bytes:
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            writer.write(request_frame("Predict", b"%d" % number))
            return (await asyncio.wait_for(read_frame(reader), 60)).payload
        finally:
            writer.close()

    async with serving("brpc", "native") as address:
        with connected(address, CLIENTS) as sockets:
            replies = await asyncio.gather(*(call(sock, n) for n, sock in enumerate(sockets)))
    assert replies == [b"%d" % n for n in range(CLIENTS)]
