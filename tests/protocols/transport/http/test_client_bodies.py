"""Bodies that are sent while they arrive, and answers that are taken slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.http.client import PooledHttpClient
from interlingua.protocols.wire import ConnectionFailedError, HttpCall
from interlingua.schemas import ErrorCode, InferenceError
from tests.protocols.transport.http.test_client import MIB, behaving, client
from tests.protocols.transport.peers import HttpEcho, serving

PIECES = [bytes([number]) * (number * 70_001) for number in range(1, 12)]


async def arriving(pieces: list[bytes], given: list[int] | None = None) -> AsyncIterator[bytes]:
    for number, piece in enumerate(pieces):
        if given is not None:
            given.append(number)
        await asyncio.sleep(0)
        yield piece


@pytest.mark.usefixtures("client_engine")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("first", [b"", b"begin", bytes(3 * MIB)])
async def test_a_body_that_is_still_arriving(known: bool, first: bytes) -> None:
    whole = first + b"".join(PIECES)
    length = len(whole) if known else None
    handler = HttpEcho()
    async with serving(handler) as server, client(server.address) as sender:
        for _ in range(2):
            call = HttpCall("POST", "/", parts=(first,), rest=arriving([b"", *PIECES]), length=length)
            assert (await sender.send(call)).body == whole
    for request in handler.served:
        assert request.headers.get("content-length") == (str(length) if known else None)


async def test_it_is_read_no_faster_than_it_is_sent() -> None:
    given: list[int] = []
    go = asyncio.Event()

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await go.wait()
        await reader.readexactly(64 * MIB)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with behaving(behaviour) as url, client(url) as sender:
        rest = arriving([bytes(MIB)] * 64, given)
        sending = asyncio.create_task(sender.send(HttpCall("POST", "/", rest=rest, length=64 * MIB)))
        await asyncio.sleep(0.3)
        assert 0 < len(given) < 32
        go.set()
        assert (await asyncio.wait_for(sending, 30)).body == b"ok"


async def test_a_body_that_breaks_off_fails_with_its_own_error() -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"abc"
        raise InferenceError(ErrorCode.CANCELLED, "the caller has gone")

    handler = HttpEcho()
    async with serving(handler) as server, client(server.address) as sender:
        with pytest.raises(InferenceError, match="the caller has gone"):
            await sender.send(HttpCall("POST", "/", rest=breaking(), length=10, repeatable=True))
        assert (await sender.send(HttpCall("POST", "/", parts=(b"x",)))).body == b"x"
    assert len(handler.served) == 1


async def test_a_streamed_answer_is_read_no_faster_than_it_is_taken() -> None:
    sent = 0

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        for _ in range(64):
            writer.write(bytes(MIB))
            await writer.drain()
            sent += 1

    async with behaving(behaviour) as url, client(url) as sender:
        async with aclosing(sender.stream(HttpCall("POST", "/", parts=(b"x",)))) as stream:
            size = len((await anext(stream)).body)
            await asyncio.sleep(0.3)
            assert sent < 32
            async for piece in stream:
                size += len(piece.body)
        assert size == 64 * MIB


async def test_an_idle_connection_holds_no_body() -> None:
    async with serving(HttpEcho()) as server:
        sender = PooledHttpClient(parse_url(str(server.address)))
        for size in (0, 100, 4 * MIB):
            call = HttpCall("POST", "/", parts=(bytes(size),))
            assert len((await sender.send(call)).body) == size
            (connection,) = sender._idle
            assert connection.reader.body == b""
        await sender.close()


async def test_a_client_that_closes_while_it_connects() -> None:
    handler = HttpEcho()
    async with serving(handler) as server:
        sender = PooledHttpClient(parse_url(str(server.address)))
        sending = asyncio.ensure_future(sender.send(HttpCall("GET", "/")))
        await asyncio.sleep(0)
        await sender.close()
        with pytest.raises(ConnectionFailedError) as error:
            await sending
        assert not error.value.sent and not sender._open


@pytest.mark.parametrize("turns", range(8))
async def test_a_close_that_is_cancelled_as_it_ends(turns: int) -> None:
    """``asyncio.wait_for`` of Python 3.11 ignores a cancellation in the turn in which it ends."""
    async with serving(HttpEcho()) as server:
        sender = PooledHttpClient(parse_url(str(server.address)))
        await sender.send(HttpCall("GET", "/"))
        closing = asyncio.create_task(sender.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = closing.cancel()
        await asyncio.wait((closing,))
        assert closing.cancelled() is cancelled


async def test_a_body_that_ends_early() -> None:
    async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()

    async with behaving(short) as address:
        sender = PooledHttpClient(parse_url(f"http://{address}"))
        with pytest.raises(ConnectionFailedError, match="broke off in the middle of its answer"):
            await sender.send(HttpCall("GET", "/"))
        await sender.close()
