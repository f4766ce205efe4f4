"""The framed client before servers that behave, and that do not."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.framed import client as framed_client
from interlingua.protocols.transport.framed.client import PooledFramedClient
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import ConnectionFailedError, FramedCall
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.protocols.transport.framed.test_server import serving
from tests.standins.framed import framed, read_framed
from tests.waiting import until

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asking(message: bytes, secs: float = 5.0, repeatable: bool = False) -> FramedCall:
    parts = [struct.pack("<I", len(message)), message]
    return FramedCall(parts=parts, context=Context(deadline=time.monotonic() + secs), repeatable=repeatable)


@asynccontextmanager
async def requested(url: Any, **options: Any) -> AsyncIterator[PooledFramedClient]:
    client = PooledFramedClient(parse_url(str(url), "tcp"), ClientOptions(**options))
    try:
        yield client
    finally:
        await client.close()
        assert not client._connections


@asynccontextmanager
async def answering(answer: Answering) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that does as ``answer`` says on every connection, and the list of these."""
    accepted: list[int] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(len(accepted))
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname()), accepted
    finally:
        server.close()


async def fails(client: PooledFramedClient, request: FramedCall) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        await client.send(request)
    return caught.value


async def test_one_message_after_the_other_over_one_connection() -> None:
    async with serving() as (server, echo), requested(f"tcp://{server.address}") as client:
        for message in (b"", b"one", bytes(3_000_000), b"two"):
            assert bytes((await client.send(asking(message))).message) == message
        assert len(server.connections.open) == 1
        assert len(echo.served) == 4


async def test_messages_that_are_under_way_have_a_connection_each() -> None:
    async with serving() as (server, _), requested(server.address) as client:
        sent = [b"sleep %d" % (30 * (place % 3)) for place in range(12)]
        replies = await asyncio.gather(*(client.send(asking(each)) for each in sent))
        assert [bytes(reply.message) for reply in replies] == sent
        assert len(server.connections.open) == 12
        await client.send(asking(b"one more"))
        assert len(server.connections.open) == 12


async def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_client, "KEEP_SECS", 0.2)
    async with serving() as (server, _), requested(server.address) as client:
        await asyncio.gather(*(client.send(asking(b"sleep 20")) for _ in range(3)))
        for _ in range(6):  # one of them is in use all the time
            await asyncio.sleep(0.05)
            await client.send(asking(b"x"))
        assert len(server.connections.open) == 1
        await until(lambda: not server.connections.open)
        await client.send(asking(b"y"))


async def test_a_connection_that_the_server_has_closed_is_not_used() -> None:
    async with (
        serving(timeouts=Timeouts(idle_secs=0.1)) as (server, echo),
        requested(server.address) as client,
    ):
        await client.send(asking(b"one"))
        await until(lambda: not server.connections.open and not client._connections)
        await client.send(asking(b"two"))
        assert echo.served == [b"one", b"two"]


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_kept_connection_that_breaks_before_an_answer(repeatable: bool) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = await read_framed(reader)
        assert message is not None
        writer.write(framed(message))
        await read_framed(reader)  # and not a word to that

    async with answering(once) as (url, accepted), requested(url) as client:
        await client.send(asking(b"one"))
        if repeatable:
            assert bytes((await client.send(asking(b"two", repeatable=True))).message) == b"two"
            assert len(accepted) == 2
        else:
            error = await fails(client, asking(b"two"))
            assert isinstance(error, ConnectionFailedError)
            assert (error.code, error.sent, len(accepted)) == (ErrorCode.UNAVAILABLE, True, 1)
            assert "closed the connection without an answer" in error.message


async def test_a_connection_that_breaks_in_an_answer_is_not_tried_again() -> None:
    async def cutting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while message := await read_framed(reader):
            writer.write(framed(message)[: -2 if message == b"cut" else None])
            if message == b"cut":
                return

    async with answering(cutting) as (url, accepted), requested(url) as client:
        await client.send(asking(b"one"))
        error = await fails(client, asking(b"cut", repeatable=True))
        assert isinstance(error, ConnectionFailedError)
        assert (error.code, error.sent, len(accepted)) == (ErrorCode.UNAVAILABLE, True, 1)
        assert "broke off in the middle of its answer" in error.message


async def test_the_deadline_ends_the_work_there_too() -> None:
    async with serving() as (server, echo), requested(server.address) as client:
        error = await fails(client, asking(b"wait", 0.1))
        assert error.code is ErrorCode.DEADLINE_EXCEEDED
        await until(lambda: echo.cancelled == 1 and not server.connections.open)
        assert bytes((await client.send(asking(b"next"))).message) == b"next"


async def test_a_cancelled_caller_ends_the_remote_work_too() -> None:
    async with serving() as (server, echo), requested(server.address) as client:
        sending = asyncio.ensure_future(client.send(asking(b"wait")))
        await until(lambda: echo.served)
        sending.cancel()
        await until(lambda: echo.cancelled == 1)
        await client.send(asking(b"next"))


async def test_a_deadline_that_has_passed() -> None:
    async with serving() as (server, echo), requested(server.address) as client:
        error = await fails(client, asking(b"late", -1))
        assert (error.code, echo.served) == (ErrorCode.DEADLINE_EXCEEDED, [])


async def test_an_answer_too_large_is_not_read() -> None:
    async with serving() as (server, _), requested(server.address, max_response_bytes=1000) as client:
        assert len((await client.send(asking(b"large 1000"))).message) == 1000
        error = await fails(client, asking(b"large 40000000"))
        assert error.code is ErrorCode.TOO_LARGE
        assert "40000000 bytes, more than the 1000" in error.message
        await client.send(asking(b"next"))


async def test_a_server_that_speaks_http() -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with answering(http) as (url, _), requested(url) as client:
        error = await fails(client, asking(b"x"))
        assert isinstance(error, ConnectionFailedError)
        assert (error.code, error.sent) == (ErrorCode.BAD_UPSTREAM, True)
        assert "it answered in HTTP" in error.message


async def test_an_unrequested_message_is_no_answer() -> None:
    async def talking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while message := await read_framed(reader):
            writer.write(framed(message))
            if message == b"twice":
                writer.write(framed(b"more"))
            if message == b"later":
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.write(framed(b"more"))

    async with answering(talking) as (url, accepted), requested(url) as client:
        for number, message in enumerate((b"twice", b"later", b"last"), 1):
            assert bytes((await client.send(asking(message))).message) == message
            await asyncio.sleep(0.1)
            assert len(accepted) == number


async def test_closing_fails_what_is_under_way() -> None:
    async with serving() as (server, echo):
        client = PooledFramedClient(parse_url(str(server.address)))
        sending = asyncio.ensure_future(client.send(asking(b"wait")))
        await until(lambda: echo.served)
        await client.close()
        with pytest.raises(ConnectionFailedError):
            await sending


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two connections, then messages are pipelined."""
    monkeypatch.setattr(framed_client, "MAX_CONNECTIONS", 2)


@pytest.mark.usefixtures("few")
async def test_messages_are_pipelined_when_connections_run_out() -> None:
    async with serving() as (server, _), requested(server.address) as client:
        for _ in range(3):
            sent = [b"sleep %d" % (10 * (place % 3)) for place in range(20)]
            replies = await asyncio.gather(*(client.send(asking(each)) for each in sent))
            assert [bytes(reply.message) for reply in replies] == sent
            assert len(server.connections.open) == 2
            assert len(client._idle) == 2


@pytest.mark.usefixtures("few")
async def test_an_abandoned_message_does_not_fail_those_beside_it() -> None:
    async with serving() as (server, echo), requested(server.address) as client:
        slow = [asyncio.ensure_future(client.send(asking(b"sleep 100"))) for _ in range(2)]
        await until(lambda: len(echo.served) == 2)
        behind = [asyncio.ensure_future(client.send(asking(b"sleep %d" % place))) for place in range(4)]
        await asyncio.sleep(0)
        slow[0].cancel()
        behind[0].cancel()
        outcomes = await asyncio.gather(*slow, *behind, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in outcomes] == [1, 0, 1, 0, 0, 0]
        assert [bytes(each.message) for each in outcomes[3:]] == [b"sleep 1", b"sleep 2", b"sleep 3"]
        await until(lambda: len(server.connections.open) == 1)
        await client.send(asking(b"next"))


@pytest.mark.usefixtures("few")
async def test_a_break_fails_every_message_of_its_connection() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            await read_framed(reader)
        writer.write(framed(b"one") + framed(b"two")[:-1])

    async with answering(half) as (url, _), requested(url) as client:
        sending = [asyncio.ensure_future(client.send(asking(b"%d" % place))) for place in range(2)]
        await until(lambda: [each.in_flight for each in client._connections] == [1, 1])
        sending += [asyncio.ensure_future(client.send(asking(b"%d" % place))) for place in range(2, 6)]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        assert [bytes(each.message) for each in outcomes[:2]] == [b"one"] * 2
        for place, words in ((2, "middle of its answer"), (3, "middle"), (4, "without an answer")):
            error = outcomes[place]
            assert isinstance(error, ConnectionFailedError)
            assert (error.code, error.sent) == (ErrorCode.UNAVAILABLE, True)
            assert words in error.message


async def test_a_client_that_closes_while_it_connects() -> None:
    async with serving() as (server, echo):
        async with requested(f"tcp://{server.address}") as client:
            waiting = asyncio.ensure_future(fails(client, asking(b"x")))
            await asyncio.sleep(0)
        assert (await waiting).code is ErrorCode.UNAVAILABLE
        assert not echo.served
