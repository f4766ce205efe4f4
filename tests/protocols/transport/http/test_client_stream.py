"""Replies that come in pieces: the HTTP client against servers that stream well, badly, and not at all."""

from __future__ import annotations

import asyncio
import gzip
import time
from contextlib import aclosing

import pytest

from interlingua.protocols.wire import HttpReply
from interlingua.protocols.wire_clients import HttpClient
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.protocols.transport.http.test_client import a_post, answering, behaving, client

pytestmark = pytest.mark.usefixtures("client_engine")
CHUNKED = b"HTTP/1.1 200 OK\r\nX-Kind: told\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


async def pieces(*answer: bytes, **options: float) -> list[HttpReply]:
    async with behaving(answering(*answer, pause=0.02)) as url, client(url, **options) as sender:
        return [piece async for piece in sender.stream(a_post(b"x"))]


async def failure(*answer: bytes, **options: float) -> tuple[InferenceError, bytes]:
    """The error at the end of a stream, and what came before."""
    come: list[bytes] = []

    async def take(sender: HttpClient) -> None:
        async for piece in sender.stream(a_post(b"x")):
            come.append(bytes(piece.body))

    async with behaving(answering(*answer, pause=0.02)) as url, client(url, **options) as sender:
        with pytest.raises(InferenceError) as error:
            await take(sender)
    assert url in error.value.message
    return error.value, b"".join(come)


async def test_pieces_come_as_they_are_sent_and_an_empty_one_last() -> None:
    told = await pieces(CHUNKED, chunk(b"one"), chunk(b"two"), END)
    assert [piece.body for piece in told] == [b"one", b"two", b""]
    assert {(piece.status, piece.headers["x-kind"]) for piece in told} == {(200, "told")}


async def test_a_piece_comes_before_the_next_is_sent() -> None:
    more = asyncio.Event()

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + chunk(b"one"))
        await more.wait()
        writer.write(chunk(b"two") + END)
        await writer.drain()

    async with (
        behaving(behaviour) as url,
        client(url) as sender,
        aclosing(sender.stream(a_post(b"x"))) as stream,
    ):
        assert (await anext(stream)).body == b"one"
        more.set()
        assert [piece.body async for piece in stream] == [b"two", b""]


async def test_without_chunks_the_end_of_the_connection_is_the_end() -> None:
    told = await pieces(b"HTTP/1.0 200 OK\r\n\r\n", b"one", b"two")
    assert b"".join(bytes(piece.body) for piece in told) == b"onetwo"
    assert told[-1].body == b""


async def test_another_status_and_a_compressed_body_come_whole() -> None:
    head = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n"
    told = await pieces(head, chunk(b"so"), chunk(b"rry"), END)
    assert [(piece.status, piece.body) for piece in told] == [(503, b"sorry"), (503, b"")]
    packed = gzip.compress(b"text")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    told = await pieces(head, chunk(packed[:9]), chunk(packed[9:]), END)
    assert [piece.body for piece in told] == [b"text", b""]


async def test_the_connection_is_kept_after_the_end_and_closed_before() -> None:
    ended = asyncio.Event()
    connections = 0

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\nx")
            writer.write(CHUNKED + chunk(b"one") + END)
        await reader.readuntil(b"\r\n\r\nx")
        writer.write(CHUNKED + chunk(b"one"))
        assert await reader.read() == b""
        ended.set()

    async with behaving(behaviour) as url, client(url) as sender:
        for _ in range(2):
            assert len([piece async for piece in sender.stream(a_post(b"x"))]) == 2
        async with aclosing(sender.stream(a_post(b"x"))) as stream:
            assert (await anext(stream)).body == b"one"
        await asyncio.wait_for(ended.wait(), 30)
    assert connections == 1


@pytest.mark.parametrize("rest", [b"", b"5\r\nab", b"zz\r\n"])
async def test_a_stream_that_breaks_off(rest: bytes) -> None:
    error, come = await failure(CHUNKED, chunk(b"one"), rest)
    assert error.code in (ErrorCode.UNAVAILABLE, ErrorCode.BAD_UPSTREAM)
    assert come.startswith(b"one")


async def test_more_than_the_limit() -> None:
    error, come = await failure(CHUNKED, chunk(b"abc"), chunk(b"def"), END, max_response_bytes=5)
    assert (error.code, come) == (ErrorCode.TOO_LARGE, b"abc")


async def test_the_deadline_holds_for_every_piece() -> None:
    async with behaving(answering(CHUNKED + chunk(b"one"), pause=0.5)) as url, client(url) as sender:
        request = a_post(b"x", context=Context(deadline=time.monotonic() + 0.2))
        stream = sender.stream(request)
        assert (await anext(stream)).body == b"one"
        with pytest.raises(InferenceError) as error:
            await anext(stream)
    assert error.value.code is ErrorCode.DEADLINE_EXCEEDED


async def test_time_that_its_reader_takes_is_not_cut_short() -> None:
    """A deadline ends a wait for the server, not what the caller does with a piece."""
    async with behaving(answering(CHUNKED, chunk(b"one") + END)) as url, client(url) as sender:
        request = a_post(b"x", context=Context(deadline=time.monotonic() + 0.2))
        async with aclosing(sender.stream(request)) as stream:
            assert (await anext(stream)).body == b"one"
            await asyncio.sleep(0.3)


async def test_no_server_there() -> None:
    async with client("127.0.0.1:1") as sender:
        with pytest.raises(InferenceError) as error:
            await anext(sender.stream(a_post(b"x")))
    assert error.value.code is ErrorCode.UNAVAILABLE
