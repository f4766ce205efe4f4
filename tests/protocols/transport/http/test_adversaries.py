"""Clients of HTTP that mean no good, or do not know better: they get an answer or the door, and nobody else
notices. Of our own engine; aiohttp's has its own habits here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest

from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.http1.body import SMALL_CHUNKS
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import HttpAnswer
from tests.protocols.transport.peers import HttpEcho, RawHttp, post, serving, stalling
from tests.waiting import until

MIB = 1 << 20
WAITING = post("/wait")
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def get(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: x", *lines, "", "")).encode()


def reset(peer: RawHttp) -> None:
    """Break the connection off as a process does that is killed with bytes unread."""
    sock = peer.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.writer.transport.abort()


async def until_idle(server: HttpServer) -> None:
    await until(lambda: not server.at_work)


class TestManyAtOnce:
    async def test_a_thousand_requests_in_one_piece(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"".join(post("/", b"%d" % number) for number in range(1000)))
            for number in range(1000):
                assert (await peer.reply()).body == b"%d" % number
        assert len(handler.served) == 1000

    async def test_an_empty_line_is_no_request(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"\r\n\r\n")
            assert (await peer.post("/", b"a")).body == b"a"
        assert [request.method for request in handler.heads] == ["POST"]

    async def test_of_every_kind(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(
                post("/", b"a")
                + b"\r\n"  # which some clients of old send behind a body
                + CHUNKED
                + b"1\r\nb\r\n0\r\n\r\n"
                + get("/refused")
                + post("/refused", b"body")
                + CHUNKED.replace(b"POST / ", b"POST /refused ")
                + b"1\r\nb\r\n0\r\n\r\n"
                + post("/", b"c", "Expect: 100-continue")
                + b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"
                + post("/", b"d", "Connection: close")
                + post("/", b"e")
            )
            told = [await peer.reply() for _ in range(6)]
            assert [reply.status for reply in told] == [200, 200, 404, 404, 404, 200]
            assert [told[place].body for place in (0, 1, 5)] == [b"a", b"b", b"c"]
            assert (await peer.reply(head_only=True)).headers["content-length"] == "0"
            assert (await peer.reply()).body == b"d"
            assert await peer.ended()
        assert [bytes(request.body) for request in handler.served] == [b"a", b"b", b"c", b"", b"d"]

    async def test_what_comes_ahead_waits_in_the_clients_socket(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(WAITING)
            await asyncio.wait_for(handler.entered.wait(), 30)
            peer.writer.write(post("/", b"x" * 1000) * (64 * 1024))
            await asyncio.sleep(0.3)
            assert peer.writer.transport.get_write_buffer_size() > 32 * MIB
            assert len(handler.heads) == 1

    async def test_the_handler_is_not_called_for_a_client_that_does_not_read(self) -> None:
        handler = HttpEcho(answers={"/": HttpAnswer(200, (), (b"x" * 60_000,))})
        async with serving(handler, timeouts=stalling(0.3)) as server, RawHttp.to(server.address) as peer:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await peer.send(post("/") * 1000)
            await asyncio.sleep(0.2)
            assert len(handler.served) < 400  # what the buffers of two sockets take, not more
            await until_idle(server)
            assert len(handler.served) < 400

    async def test_the_same_for_answers_from_the_head_alone(self) -> None:
        handler = HttpEcho()
        async with serving(handler, timeouts=stalling(0.3)) as server, RawHttp.to(server.address) as peer:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            sending = asyncio.create_task(peer.send(get("/refused") * 1_000_000))
            before, asked = -1, 0
            async with asyncio.timeout(20):
                while asked > before:
                    await asyncio.sleep(0.25)
                    before, asked = asked, len(handler.heads)
            assert asked < 500_000
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await sending

    async def test_others_get_their_turn(self) -> None:
        handler = HttpEcho()
        async with (
            serving(handler) as server,
            RawHttp.to(server.address) as many,
            RawHttp.to(server.address) as one,
        ):
            await many.send(get("/") * 1500)
            await until(lambda: handler.served)
            assert (await one.post("/one")).status == 200
            assert len(handler.served) < 1500

    async def test_no_more_is_read_of_a_flood_that_was_refused(self) -> None:
        async with serving(HttpEcho(), linger_secs=60) as server, RawHttp.to(server.address) as peer:
            peer.writer.write(CHUNKED + b"1\r\nx\r\n" * (SMALL_CHUNKS + 50_000))
            assert (await peer.reply()).status == 400
            peer.writer.write(bytes(32 * MIB))
            await asyncio.sleep(0.3)
            assert peer.writer.transport.get_write_buffer_size() > 8 * MIB

    async def test_all_are_answered_that_came_before_the_end(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            peer.writer.write(post("/", b"a") + post("/", b"b") + post("/", b"c") + b"POST / HT")
            peer.writer.write_eof()
            assert [(await peer.reply()).body for _ in range(3)] == [b"a", b"b", b"c"]
            assert await peer.ended()


class TestSmuggling:
    @pytest.mark.parametrize(
        "lines",
        [
            ("Content-Length: 60", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding: chunked", "Content-Length: 60"),
            ("Content-Length: 3", "Content-Length: 60"),
            ("Content-Length: 3, 60",),
            ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
            ("Transfer-Encoding: xchunked",),
            ("Transfer-Encoding : chunked",),
            ("Content-Length: 3\n X: y",),
        ],
        ids=repr,
    )
    async def test_what_can_be_cut_in_two_ways_is_not_cut(self, lines: tuple[str, ...]) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(get("/a", *lines) + b"0\r\n\r\n" + get("/smuggled"))
            reply = await peer.reply()
            assert (reply.status, reply.headers["connection"]) == (400, "close")
            assert await peer.ended()
        assert "/smuggled" not in [request.path for request in handler.heads]
        assert not handler.served

    async def test_what_follows_a_bad_chunk_is_no_request(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n" + get("/smuggled"))
            assert (await peer.reply()).status == 400
            assert await peer.ended()
        assert "/smuggled" not in [request.path for request in handler.heads]

    async def test_what_follows_an_early_answer_is_no_request(self) -> None:
        handler = HttpEcho(max_body_bytes=10)
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n" + get("/smuggled"))
            assert (await peer.reply()).headers["x-code"] == "TOO_LARGE"
            with contextlib.suppress(ConnectionError):
                await peer.send(get("/smuggled"))
                assert await peer.ended()
        assert [request.path for request in handler.heads] == ["/"]

    async def test_a_good_request_is_answered_before_a_bad_one_is_refused(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(post("/", b"good") + b"GET / HTTP/7.7\r\n\r\n")
            assert (await peer.reply()).body == b"good"
            assert (await peer.reply()).status == 505
            assert await peer.ended()


class TestMemory:
    async def test_a_body_without_memory_is_refused(self) -> None:
        def exhausted(size: int) -> memoryview:
            raise MemoryError

        load = ListenerLoad()
        load.allocate = exhausted
        async with serving(HttpEcho(), load=load) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n" + bytes(1000))
            reply = await peer.reply()
            assert (reply.headers["x-code"], reply.headers["connection"]) == ("OVERLOADED", "close")


class TestSlowness:
    async def test_a_head_that_drips_is_cut_off(self) -> None:
        async with (
            serving(HttpEcho(), timeouts=Timeouts(idle_secs=0.3)) as server,
            RawHttp.to(server.address) as peer,
        ):
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\n")
            with pytest.raises((ConnectionError, RuntimeError)):  # noqa: PT012
                async with asyncio.timeout(30):
                    while True:
                        await peer.send(b"A: b\r\n")
                        await asyncio.sleep(0.02)

    async def test_a_next_head_that_drips_too(self) -> None:
        async with (
            serving(HttpEcho(), timeouts=Timeouts(idle_secs=0.3)) as server,
            RawHttp.to(server.address) as peer,
        ):
            assert (await peer.post("/")).status == 200
            await peer.send(b"POST / HT")
            assert await peer.ended()

    async def test_a_body_that_drips_is_waited_for(self) -> None:
        async with serving(HttpEcho(), timeouts=stalling(0.6)) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n")
            for _ in range(20):
                await asyncio.sleep(0.04)
                await peer.send(b"x")
            assert (await peer.reply()).body == b"x" * 20

    async def test_chunks_that_stall_are_refused(self) -> None:
        async with serving(HttpEcho(), timeouts=stalling(0.1)) as server, RawHttp.to(server.address) as peer:
            await peer.send(CHUNKED + b"3\r\nab")
            assert (await peer.reply()).headers["x-code"] == "DEADLINE_EXCEEDED"
            assert await peer.ended()

    async def test_a_head_that_never_ends_is_refused_by_its_size(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            peer.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 100_000)
            reply = await peer.reply()
            assert (reply.status, reply.headers["connection"]) == (400, "close")

    async def test_what_can_be_no_head_is_refused_before_it_ends(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            assert (await peer.reply()).status == 400
            assert await peer.ended()


class TestBreakingOff:
    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"POST / HT",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
            CHUNKED + b"5\r\nab",
            WAITING,
            WAITING + WAITING,
            post("/large"),
            post("/large") * 20,
        ],
        ids=lambda sent: repr(sent[-20:]),
    )
    async def test_anywhere(self, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
        handler = HttpEcho(answers={"/large": HttpAnswer(200, (), (b"x" * (8 * MIB),))})
        async with serving(handler, half_closed_secs=0.05) as server:
            async with RawHttp.to(server.address) as peer:
                peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await peer.send(sent)
                await asyncio.sleep(0.05)
                reset(peer)
            await until_idle(server)
            async with RawHttp.to(server.address) as peer:
                assert (await peer.post("/", b"next")).body == b"next"
        assert not caplog.records

    async def test_those_at_work_are_cancelled(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server:
            async with RawHttp.to(server.address) as peer:
                await peer.send(WAITING)
                await asyncio.wait_for(handler.entered.wait(), 30)
                reset(peer)
            await asyncio.wait_for(handler.cancelled.wait(), 20)
            await until_idle(server)
