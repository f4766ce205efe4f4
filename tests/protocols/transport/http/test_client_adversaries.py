"""Answers that belong to no request, or to one that is not read to its end."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from interlingua.protocols.wire import HttpCall
from interlingua.schemas import Context
from tests.protocols.transport.http.test_client import MIB, behaving, client

OK = b"HTTP/1.1 200 OK\r\n"
GOOD = OK + b"Content-Length: 2\r\n\r\nok"
LIMIT = 4 * MIB


def a_call(path: str, seconds: float, *, repeatable: bool = False) -> HttpCall:
    context = Context(deadline=time.monotonic() + seconds)
    return HttpCall("POST", path, parts=(b"x",), context=context, repeatable=repeatable)


@contextmanager
def elsewhere(
    *answer: bytes, pause: float = 0, at_once: bool = False
) -> Iterator[tuple[str, list[socket.socket]]]:
    """A server in a thread of its own, which answers the first request of each connection with these bytes and
    then closes it; its address and its connections. ``at_once``: the end arrives with the answer."""
    accepted: list[socket.socket] = []

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    accepted.append(connection)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, at_once)
                    connection.recv(65536)
                    for part in answer:
                        connection.sendall(part)
                        time.sleep(pause)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield "{}:{}".format(*listening.getsockname()), accepted
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("pause", [0.0, 0.02])
async def test_an_answer_to_no_request_reaches_no_request(pause: float) -> None:
    """Neither in the same piece as the answer before, nor later, on the idle connection."""
    with elsewhere(GOOD, OK + b"Content-Length: 3\r\n\r\nbad", pause=pause) as (url, accepted):
        async with client(url) as sender:
            for _ in range(3):
                assert (await sender.send(a_call("/", 5))).body == b"ok"
                time.sleep(0.1)  # the loop does not see it arrive
    assert len(accepted) == 3


async def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    """Nothing is sent on it, so that a request that may not be repeated succeeds."""
    with elsewhere(GOOD) as (url, accepted):
        async with client(url) as sender:
            for _ in range(3):
                assert (await sender.send(a_call("/", 5))).body == b"ok"
                time.sleep(0.05)
    assert len(accepted) == 3


async def test_a_connection_that_ended_with_its_answer_is_not_used() -> None:
    """However soon the next request follows."""
    with elsewhere(GOOD, at_once=True) as (url, accepted):
        async with client(url) as sender:
            for _ in range(10):
                assert (await sender.send(a_call("/", 5))).body == b"ok"
    assert len(accepted) == 10


async def test_an_early_answer_ends_the_connection() -> None:
    """RFC 9112, 9.5: the server may not read the rest of the request."""
    connections = 0

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        await asyncio.sleep(0.5)

    async with behaving(behaviour) as url, client(url) as sender:
        for _ in range(2):
            call = HttpCall("POST", "/", parts=(bytes(32 * MIB),), context=Context())
            reply = await asyncio.wait_for(sender.send(call), 30)
            assert (reply.status, reply.body) == (413, b"big")
    assert connections == 2
