"""Servers that misbehave: the client's error is typed and in time, and only their own connection ends."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from interlingua.protocols.wire import HttpCall
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.protocols.transport.http.test_client import MIB, behaving, client

OK = b"HTTP/1.1 200 OK\r\n"
GOOD = OK + b"Content-Length: 2\r\n\r\nok"
LIMIT = 4 * MIB

Misbehaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def saying(*answer: bytes, stay: float = 5) -> Misbehaviour:
    """Answers with these bytes, and stays."""

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in answer:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(), stay)

    return behaviour


def repeating(begin: bytes, piece: bytes, pause: float = 0) -> Misbehaviour:
    """Sends ``piece`` without end."""

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return behaviour


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"Content-Length: 5\r\n\r\nab")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


BOMB = gzip.compress(bytes(64 * MIB), 1)
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LATE, GONE = ErrorCode.DEADLINE_EXCEEDED, ErrorCode.UNAVAILABLE
FOREIGN, LARGE = ErrorCode.BAD_UPSTREAM, ErrorCode.TOO_LARGE

MISBEHAVIOURS: dict[str, tuple[Misbehaviour, ErrorCode]] = {
    "silence": (saying(), LATE),
    "half a head": (saying(OK + b"A: b\r\n"), LATE),
    "a head that drips": (repeating(OK, b"A: b\r\n", 0.02), LATE),
    "endless 100 Continue": (repeating(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), FOREIGN),
    "endless early hints": (repeating(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), FOREIGN),
    "100 Continue and no more": (saying(b"HTTP/1.1 100 Continue\r\n\r\n"), LATE),
    "a flood of headers": (repeating(OK, b"A: b\r\n" * 1000), FOREIGN),
    "a header without end": (repeating(OK + b"A: ", b"x" * 65536), FOREIGN),
    "a status line without end": (repeating(b"HTTP/1.1 200 ", b"x" * 65536), FOREIGN),
    "many headers": (saying(OK + b"A: b\r\n" * 5000 + b"\r\n"), FOREIGN),
    "a claim of 2 GiB": (saying(OK + b"Content-Length: 2147483648\r\n\r\nab"), LARGE),
    "a claim that no number holds": (saying(OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n"), FOREIGN),
    "endless chunks": (repeating(CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n"), LARGE),
    "endless small chunks": (repeating(CHUNKED, b"1\r\nx\r\n" * 1000), LATE),
    "a chunk of a yottabyte": (saying(CHUNKED + b"f" * 24 + b"\r\nab"), FOREIGN),
    "a chunk size without end": (repeating(CHUNKED, b"0" * 5000), FOREIGN),
    "chunk extensions without end": (repeating(CHUNKED + b"1;", b"x" * 5000), FOREIGN),
    "trailers without end": (repeating(CHUNKED + b"0\r\n", b"A: b\r\n" * 1000), ErrorCode.UNAVAILABLE),
    "an endless body": (repeating(b"HTTP/1.0 200 OK\r\n\r\n", b"x" * 65536), LARGE),
    "a body that drips": (repeating(OK + b"Content-Length: 1000000\r\n\r\n", b"x", 0.02), LATE),
    "a body that is too short": (saying(OK + b"Content-Length: 5\r\n\r\nab"), LATE),
    "a body that ends early": (saying(OK + b"Content-Length: 5\r\n\r\nab", stay=0), GONE),
    "a reset in mid-answer": (resetting, GONE),
    "a close without an answer": (saying(stay=0), GONE),
    "two lengths": (saying(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"), FOREIGN),
    "a length and chunks": (saying(OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"), FOREIGN),
    "an unknown transfer coding": (saying(OK + b"Transfer-Encoding: gzip\r\n\r\n"), FOREIGN),
    "garbage": (saying(b"\0\1\2\3" * 100), FOREIGN),
    "HTTP/2": (saying(b"\0\0\0\4\0\0\0\0\0"), FOREIGN),
    "TLS": (saying(b"\x15\3\1\0\2\2\x50"), FOREIGN),
    "another protocol": (saying(b"SSH-2.0-OpenSSH_9\r\n"), FOREIGN),
    "HTML without a head": (saying(b"<html>\r\n\r\n"), FOREIGN),
    "not gzip": (saying(OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", stay=0), FOREIGN),
    "a gzip bomb": (
        saying(
            OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB),
            BOMB,
            stay=0,
        ),
        LARGE,
    ),
}


@asynccontextmanager
async def watching() -> AsyncIterator[list[float]]:
    """The longest CPU time, in seconds, that the loop's thread spent between two turns."""
    longest = [0.0]

    async def tick() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest[0] = max(longest[0], now - before)
            before = now

    task = asyncio.create_task(tick())
    try:
        yield longest
    finally:
        task.cancel()


def a_call(path: str, seconds: float, *, repeatable: bool = False) -> HttpCall:
    context = Context(deadline=time.monotonic() + seconds)
    return HttpCall("POST", path, parts=(b"x",), context=context, repeatable=repeatable)


@pytest.mark.parametrize("name", MISBEHAVIOURS)
async def test_a_server_that_misbehaves(name: str) -> None:
    misbehave, code = MISBEHAVIOURS[name]

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while request := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(1)
                if b"/bad" in request:
                    await misbehave(reader, writer)
                    return
                writer.write(GOOD)

    async with behaving(behaviour) as url, client(url, max_response_bytes=LIMIT) as sender:
        assert (await sender.send(a_call("/good", 10))).body == b"ok"
        async with watching() as longest:
            good = asyncio.create_task(sender.send(a_call("/good", 10)))
            began = time.monotonic()
            with pytest.raises(InferenceError) as error:
                await sender.send(a_call("/bad", 0.5))
            assert time.monotonic() - began < 5
            assert (await good).body == b"ok"
        assert error.value.code is code, error.value
        assert url in error.value.message
        assert longest[0] < 0.05
        # a server may close after an answer that only its coding spoils
        assert (await sender.send(a_call("/good", 10, repeatable=True))).body == b"ok"


@contextmanager
def elsewhere(*answer: bytes, pause: float = 0) -> Iterator[tuple[str, list[socket.socket]]]:
    """A server in a thread of its own, which answers the first request of each connection with these bytes and
    then closes it; its address and its connections."""
    accepted: list[socket.socket] = []

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    accepted.append(connection)
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
            reply = await asyncio.wait_for(sender.send(call), 10)
            assert (reply.status, reply.body) == (413, b"big")
    assert connections == 2
