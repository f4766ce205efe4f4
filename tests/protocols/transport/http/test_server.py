"""The HTTP listener on real sockets: framing, limits, waiting, and how a connection ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import HttpAnswer
from interlingua.schemas import ErrorCode
from tests.protocols.transport import peers
from tests.protocols.transport.peers import LOOPBACK, HttpEcho, RawHttp, Reply, post, serving, stalling
from tests.waiting import until

MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("engine")


async def ask(handler: HttpEcho, path: str, body: bytes = b"", *headers: str, version: str = "1.1") -> Reply:
    async with serving(handler) as server, RawHttp.to(server.address) as peer:
        return await peer.post(path, body, *headers, version=version)


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 30)


async def flood(peer: RawHttp) -> None:
    while True:
        await peer.send(b"x" * 65_536)
        await asyncio.sleep(0.01)


class TestTheHead:
    async def test_path_and_query_stay_as_sent(self) -> None:
        handler = HttpEcho()
        await ask(handler, "/a%2Fb/%41?x=%20&y")
        (request,) = handler.heads
        assert (request.method, request.path, request.query) == ("POST", "/a%2Fb/%41", "x=%20&y")

    async def test_an_absolute_target_is_a_path(self) -> None:
        handler = HttpEcho()
        await ask(handler, "http://elsewhere:80/v2/a%2Fb?q")
        assert (handler.heads[0].path, handler.heads[0].query) == ("/v2/a%2Fb", "q")

    async def test_headers_are_found_in_any_case(self) -> None:
        handler = HttpEcho()
        await ask(handler, "/", b"", "X-Some: Value", "TraceParent: 00-1", "tracestate: a=b")
        (request,) = handler.heads
        assert request.headers["x-some"] == "Value"
        assert (request.context.traceparent, request.context.tracestate) == ("00-1", "a=b")
        assert request.context.peer == "127.0.0.1"

    async def test_a_missing_host_is_refused_in_words(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"GET / HTTP/1.1\r\n\r\n")
            reply = await peer.reply()
            assert (reply.status, reply.body) == (400, b"Missing 'Host' header in request.\n")

    async def test_nothing_about_the_server_is_reported(self) -> None:
        reply = await ask(HttpEcho(), "/", b"x")
        assert set(reply.headers) == {"x-kind", "content-length"}

    async def test_a_long_header_is_taken(self) -> None:
        handler = HttpEcho()
        await ask(handler, "/", b"", f"NV-InferRequest: {'i' * 60_000}")
        assert len(handler.heads[0].headers["nv-inferrequest"]) == 60_000

    async def test_what_is_not_http_gets_400_and_no_traceback(self, caplog: pytest.LogCaptureFixture) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"\x16\x03\x01 garbage\r\n\r\n")
            reply = await peer.reply()
            assert (reply.status, reply.headers["connection"]) == (400, "close")
            assert await peer.ended()
        assert not caplog.records


class TestBodies:
    @pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 5 * MIB + 3])
    async def test_come_back_whole(self, size: int) -> None:
        handler = HttpEcho()
        body = os.urandom(size)
        assert (await ask(handler, "/", body)).body == body
        assert memoryview(handler.served[0].body).readonly

    async def test_a_slow_client_is_waited_for(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            for piece in (
                b"POST / HT",
                b"TP/1.1\r\nHost: x\r\nContent-Le",
                b"ngth: 4\r\n\r\n",
                b"a",
                b"bc",
                b"d",
            ):
                await peer.send(piece)
                await asyncio.sleep(0.01)
            assert (await peer.reply()).body == b"abcd"

    async def test_chunked(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in (b"3\r\nabc\r\n", b"a;ext=1\r\n0123456789\r\n", b"0\r\n\r\n"):
                await peer.send(piece)
                await asyncio.sleep(0.01)
            assert (await peer.reply()).body == b"abc0123456789"
            assert (await peer.post("/", b"next")).body == b"next"

    @pytest.mark.parametrize("together", [True, False])
    async def test_trailers_do_not_become_headers_of_the_next_request(
        self, engine: str, together: bool
    ) -> None:
        handler = HttpEcho()
        pieces = (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"3\r\nabc\r\n0\r\nX-Leaked: 0\r\n\r\n",
        )
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            for piece in (b"".join(pieces),) if together else pieces:
                await peer.send(piece)
                await asyncio.sleep(0.01)
            reply = await peer.reply()
            assert reply.body == b"abc"
            if reply.headers.get("connection") == "close":
                assert engine == "library" and await peer.ended()
            else:
                assert (await peer.post("/", b"next")).body == b"next"
        assert not any("x-leaked" in {name.lower() for name in head.headers} for head in handler.heads)

    async def test_many_drops_become_one_body(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            sent = b""
            for size in (1, 2, 70_000, 3, 64, 65_536, 5):
                piece = os.urandom(size)
                await peer.send(b"%x\r\n" % size, piece, b"\r\n")
                await asyncio.sleep(0.01)
                sent += piece
            await peer.send(b"0\r\n\r\n")
            assert (await peer.reply()).body == sent

    async def test_broken_chunks_are_malformed(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            await asyncio.sleep(0.05)
            await peer.send(b"zz\r\n")
            reply = await peer.reply()
            assert (reply.headers["x-code"], reply.headers["connection"]) == ("MALFORMED", "close")
            assert await peer.ended()

    async def test_are_not_decompressed_here(self) -> None:
        handler = HttpEcho()
        await ask(handler, "/", b"\x1f\x8bwhatever", "Content-Encoding: gzip")
        assert handler.served[0].body == b"\x1f\x8bwhatever"

    async def test_100_continue(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n"
            )
            assert (await peer.reply()).line == "HTTP/1.1 100 Continue"
            await peer.send(b"hi")
            assert (await peer.reply()).body == b"hi"

    async def test_no_100_continue_for_what_is_refused_anyway(self) -> None:
        handler = HttpEcho(max_body_bytes=1)
        for path, status in (("/refused", 404), ("/", 400)):
            async with serving(handler) as server, RawHttp.to(server.address) as peer:
                await peer.send(post(path, b"hi", "Expect: 100-continue")[:-2])
                reply = await peer.reply()
                # the body may or may not follow, so this connection cannot go on
                assert (reply.status, reply.headers["connection"]) == (status, "close")
        assert not handler.served


class TestLimits:
    async def test_a_claimed_size_is_refused_before_a_byte_is_read(self) -> None:
        handler = HttpEcho(max_body_bytes=1000)
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
            reply = await peer.reply()  # no byte of the body was sent
            assert reply.headers["x-code"] == "TOO_LARGE"
            assert reply.headers["connection"] == "close"
            assert b"99999999999 bytes" in reply.body
            assert b"1000 that max_request_bytes" in reply.body
        assert not handler.served

    async def test_a_client_that_sends_all_before_reading_sees_the_refusal(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handler = HttpEcho(max_body_bytes=1000)
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(post("/", b"x" * (8 * MIB)))
            assert (await peer.reply()).headers["x-code"] == "TOO_LARGE"
            assert await peer.ended()
        assert not handler.served
        assert handler.refused[0].code is ErrorCode.TOO_LARGE

    async def test_a_flood_is_cut_off(self) -> None:
        handler = HttpEcho(max_body_bytes=1000)
        async with serving(handler, linger_secs=0.2) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
            assert (await peer.reply()).status == 400
            # uvloop's own words, where the write comes after the end of the connection
            with pytest.raises((ConnectionError, RuntimeError)):
                await asyncio.wait_for(flood(peer), 30)

    @pytest.mark.parametrize("pause", [0, 0.02])
    async def test_chunked_bodies_are_counted(self, pause: float) -> None:
        handler = HttpEcho(max_body_bytes=1000)
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(3):
                await asyncio.sleep(pause)
                await peer.send(b"190\r\n", b"x" * 400, b"\r\n")
            await peer.send(b"0\r\n\r\n")
            reply = await peer.reply()
            assert reply.headers["x-code"] == "TOO_LARGE"
            assert b"max_request_bytes" in reply.body
        assert not handler.served

    async def test_the_limit_itself_is_allowed(self) -> None:
        assert (await ask(HttpEcho(max_body_bytes=1000), "/", b"x" * 1000)).body == b"x" * 1000

    async def test_answers_have_a_limit_too(self) -> None:
        handler = HttpEcho(answers={"/": HttpAnswer(200, (), (b"x" * 600, b"x" * 401))})
        async with serving(handler, max_response_bytes=1000) as server, RawHttp.to(server.address) as peer:
            reply = await peer.post("/")
            assert reply.headers["x-code"] == "TOO_LARGE"
            assert b"the answer has 1001 bytes, more than the 1000 that max_response_bytes" in reply.body

    async def test_a_body_that_stalls_is_refused(self) -> None:
        handler = HttpEcho()
        async with serving(handler, timeouts=stalling(0.1)) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
            reply = await peer.reply()
            assert (reply.headers["x-code"], reply.headers["connection"]) == ("DEADLINE_EXCEEDED", "close")
        assert not handler.served

    async def test_a_head_that_never_ends_is_cut_off(self) -> None:
        async with (
            serving(HttpEcho(), timeouts=Timeouts(idle_secs=0.1)) as server,
            RawHttp.to(server.address) as peer,
        ):
            await peer.send(b"POST / HTTP/1.1\r\nHo")
            assert await peer.ended()

    async def test_a_client_that_takes_nothing_is_given_up(self) -> None:
        handler = HttpEcho(answers={"/": HttpAnswer(200, (), (b"x" * (64 * MIB),))})
        async with serving(handler, timeouts=stalling(0.2)) as server, RawHttp.to(server.address) as peer:
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await peer.send(post("/"))
            await soon(handler.entered)
            await until(lambda: not server.at_work)


class TestConnections:
    async def test_are_kept(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            for number in range(5):
                reply = await peer.post("/", b"%d" % number)
                assert reply.body == b"%d" % number
                assert "connection" not in reply.headers

    async def test_pipelined_requests_are_answered_in_order(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"".join(post("/", b"%d" % number) for number in range(100)))
            for number in range(100):
                assert (await peer.reply()).body == b"%d" % number

    async def test_answers_that_are_ready_at_once_all_leave(self) -> None:
        handler = HttpEcho()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(serving(handler))
            peers = [await stack.enter_async_context(RawHttp.to(server.address)) for _ in range(40)]
            for number, peer in enumerate(peers):
                await peer.send(post("/wait", b"%d" % number))
            async with asyncio.timeout(20):
                await until(lambda: len(handler.served) >= len(peers))
                handler.release.set()
                for number, peer in enumerate(peers):
                    assert (await peer.reply()).body == b"%d" % number

    async def test_close_is_honoured(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            reply = await peer.post("/", b"x", "Connection: close")
            assert (reply.body, reply.headers["connection"]) == (b"x", "close")
            assert await peer.ended()

    async def test_http_1_0(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            reply = await peer.post("/", b"x", "Connection: keep-alive", version="1.0")
            assert (reply.line, reply.headers["connection"]) == ("HTTP/1.0 200 OK", "keep-alive")
            reply = await peer.post("/", b"y", version="1.0")
            assert (reply.body, reply.headers["connection"]) == (b"y", "close")
            assert await peer.ended()

    async def test_an_early_answer_keeps_the_connection_if_the_body_came(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            assert (await peer.post("/refused", b"body")).status == 404
            assert (await peer.post("/", b"next")).body == b"next"

    async def test_a_disconnect_cancels(self) -> None:
        handler = HttpEcho()
        async with serving(handler, half_closed_secs=0.05) as server:
            async with RawHttp.to(server.address) as peer:
                await peer.send(post("/wait"))
                await soon(handler.entered)
            await soon(handler.cancelled)
            assert handler.served[0].context.cancel.cancelled
            await until(lambda: not server.at_work)

    async def test_a_unix_socket_tells_a_disconnect_at_once(self, tmp_path: Path) -> None:
        handler = HttpEcho()
        async with serving(handler, Address(path=str(tmp_path / "s")), half_closed_secs=1e6) as server:
            async with RawHttp.to(server.address) as peer:
                await peer.send(post("/wait"))
                await soon(handler.entered)
            await soon(handler.cancelled)

    async def test_a_stream_ends_with_the_first_write_that_fails(self) -> None:
        closed = asyncio.Event()

        async def parts() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x"
                    await asyncio.sleep(0.01)
            finally:
                closed.set()

        handler = HttpEcho(answers={"/": HttpAnswer(200, (), parts())})
        async with serving(handler, half_closed_secs=1e6) as server:
            async with RawHttp.to(server.address) as peer:
                await peer.send(post("/"))
                await peer.reader.readuntil(b"x")
            await asyncio.wait_for(closed.wait(), 20)

    @pytest.mark.parametrize("where", ["tcp", "unix"])
    async def test_a_client_that_only_sends_no_more_is_answered(self, where: str, tmp_path: Path) -> None:
        handler = HttpEcho()
        address = LOOPBACK if where == "tcp" else Address(path=str(tmp_path / "s"))
        async with serving(handler, address) as server, RawHttp.to(server.address) as peer:
            await peer.send(post("/wait"))
            peer.writer.write_eof()
            await soon(handler.entered)
            await asyncio.sleep(0.05)
            assert not handler.cancelled.is_set()
            handler.release.set()
            assert (await peer.reply()).status == 200
            assert await peer.ended()

    async def test_a_request_and_its_end_at_once(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            peer.writer.write(post("/", b"body"))
            peer.writer.write_eof()
            assert (await peer.reply()).body == b"body"
            assert await peer.ended()

    async def test_a_connection_without_a_request_ends_with_its_client(self) -> None:
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as peer:
            assert (await peer.post("/", b"x")).body == b"x"
            peer.writer.write_eof()
            assert await peer.ended()

    async def test_a_disconnect_within_the_body_cancels(self, caplog: pytest.LogCaptureFixture) -> None:
        handler = HttpEcho()
        async with serving(handler) as server:
            async with RawHttp.to(server.address) as peer:
                await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
                await until(lambda: handler.heads)
            await soon(handler.cancelled)
        assert not handler.served
        assert not caplog.records

    async def test_a_finished_request_is_not_cancelled(self) -> None:
        handler = HttpEcho()
        await ask(handler, "/", b"x")
        assert not handler.cancelled.is_set()


class TestAnswers:
    async def test_large_parts_are_written_one_after_the_other(self) -> None:
        parts = (b"abc", memoryview(os.urandom(3 * MIB)), b"", bytearray(b"def"), memoryview(b"x" * MIB)[5:])
        reply = await ask(HttpEcho(answers={"/": HttpAnswer(200, (), parts)}), "/")
        assert reply.body == b"".join(parts)

    async def test_views_of_wide_items_count_in_bytes(self) -> None:
        parts = [memoryview(b"abcdefgh" * 20_000).cast("d"), memoryview(b"01234567").cast("B", (2, 4))]
        reply = await ask(HttpEcho(answers={"/": HttpAnswer(200, (), parts)}), "/")
        assert reply.body == b"abcdefgh" * 20_000 + b"01234567"

    async def test_head_has_the_length_and_no_body(self) -> None:
        handler = HttpEcho(answers={"/": HttpAnswer(200, (), (b"12345",))})
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            await peer.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await peer.reply(head_only=True)).headers["content-length"] == "5"
            assert (await peer.post("/")).body == b"12345"

    async def test_204_has_no_length(self) -> None:
        assert "content-length" not in (await ask(HttpEcho(answers={"/": HttpAnswer(204)}), "/")).headers

    async def test_a_header_cannot_break_its_line(self) -> None:
        answer = HttpAnswer(200, (("nv-status", "two\r\nlines\x00"),))
        assert (await ask(HttpEcho(answers={"/": answer}), "/")).headers["nv-status"] == "two  lines "

    async def test_a_header_that_no_encoding_has(self) -> None:
        answer = HttpAnswer(200, (("x-a", "\udc80é"),))
        async with serving(HttpEcho(answers={"/": answer})) as server, RawHttp.to(server.address) as peer:
            assert (await peer.post("/")).headers["x-a"] == "?é"

    async def test_streams_are_chunked(self) -> None:
        async def parts() -> AsyncIterator[bytes]:
            for number in range(3):
                yield b"part %d" % number
                yield b""

        handler = HttpEcho(answers={"/": HttpAnswer(200, (), parts())})
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            reply = await peer.post("/")
            assert (reply.body, reply.chunks) == (b"part 0part 1part 2", 3)
            assert (await peer.post("/else", b"x")).body == b"x"

    async def test_streams_end_with_the_connection_for_http_1_0(self) -> None:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            yield b"b"

        handler = HttpEcho(answers={"/": HttpAnswer(200, (), parts())})
        reply = await ask(handler, "/", b"", "Connection: keep-alive", version="1.0")
        assert (reply.body, reply.headers["connection"]) == (b"ab", "close")

    async def test_a_stream_waits_for_a_slow_reader_and_ends_with_it(self) -> None:
        made, closed = 0, asyncio.Event()

        async def parts() -> AsyncIterator[bytes]:
            nonlocal made
            try:
                while True:
                    made += 1
                    yield b"x" * MIB
            finally:
                closed.set()

        async with serving(HttpEcho(answers={"/": HttpAnswer(200, (), parts())})) as server:
            async with RawHttp.to(server.address) as peer:
                peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await peer.send(post("/"))
                await asyncio.sleep(0.3)
                assert made < 40  # what the buffers of two sockets take, not more
            await soon(closed)

    async def test_a_stream_that_fails_does_not_look_whole(self) -> None:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            raise RuntimeError("half way")

        handler = HttpEcho(answers={"/": HttpAnswer(200, (), parts())})
        async with serving(handler) as server, RawHttp.to(server.address) as peer:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await peer.post("/")

    async def test_a_fault_of_the_handler_is_500_and_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        reply = await ask(HttpEcho(), "/raise", b"x")
        assert (reply.status, reply.headers["connection"]) == (500, "close")
        assert b"promise" not in reply.body
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert record.exc_info


class TestListening:
    async def test_a_used_port_is_an_error_that_names_it(self) -> None:
        async with serving(HttpEcho()) as server:
            with pytest.raises(OSError, match=f"cannot listen at {server.address}") as refused:
                await HttpServer(HttpEcho(), server.address).start()
            assert refused.value.errno == errno.EADDRINUSE

    async def test_an_unknown_host_is_an_error_that_names_it(self) -> None:
        with pytest.raises(OSError, match="cannot listen at no-such-host.invalid:0"):
            await HttpServer(HttpEcho(), Address("no-such-host.invalid", 0)).start()

    async def test_every_interface(self) -> None:
        async with serving(HttpEcho(), Address("", 0)) as server:
            assert server.address.port
            async with RawHttp.to(Address("127.0.0.1", server.address.port)) as peer:
                assert (await peer.post("/", b"x")).body == b"x"

    async def test_unix_socket(self, tmp_path: Path) -> None:
        address = Address(path=str(tmp_path / "run" / "x.sock"))
        async with serving(HttpEcho(), address) as server:
            assert server.address == address
            async with RawHttp.to(address) as peer:
                assert (await peer.post("/", b"x")).body == b"x"
        assert not os.path.lexists(address.path)

    async def test_a_stale_socket_is_replaced(self, tmp_path: Path) -> None:
        path = str(tmp_path / "x.sock")
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(path)
        dead.close()
        async with serving(HttpEcho(), Address(path=path)), RawHttp.to(Address(path=path)) as peer:
            assert (await peer.post("/", b"x")).body == b"x"

    async def test_a_live_socket_is_not(self, tmp_path: Path) -> None:
        address = Address(path=str(tmp_path / "x.sock"))
        async with serving(HttpEcho(), address):
            with pytest.raises(OSError, match=r"cannot listen at unix:.*x.sock") as refused:
                await HttpServer(HttpEcho(), address).start()
            assert refused.value.errno == errno.EADDRINUSE
            async with RawHttp.to(address) as peer:
                assert (await peer.post("/", b"x")).body == b"x"

    async def test_a_file_that_is_no_socket_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("dear")
        with pytest.raises(OSError, match="a file that is no socket is there"):
            await HttpServer(HttpEcho(), Address(path=str(path))).start()
        assert path.read_text() == "dear"

    async def test_another_servers_socket_outlives_us(self, tmp_path: Path) -> None:
        path = tmp_path / "x.sock"
        async with serving(HttpEcho(), Address(path=str(path))):
            path.unlink()
            other = socket.socket(socket.AF_UNIX)
            other.bind(str(path))
        assert path.is_socket()
        other.close()


class TestStopping:
    async def test_running_requests_end(self) -> None:
        handler = HttpEcho()
        server = HttpServer(handler, LOOPBACK, engine=peers.ENGINE)
        await server.start()
        async with RawHttp.to(server.address) as busy, RawHttp.to(server.address) as idle:
            await idle.post("/")
            await busy.send(post("/wait", b"kept"))
            handler.entered.clear()
            await soon(handler.entered)
            stopping = asyncio.create_task(server.stop(10))
            assert await idle.ended()
            with pytest.raises(ConnectionError):
                await asyncio.open_connection(server.address.host, server.address.port)
            assert not stopping.done()
            handler.release.set()
            reply = await busy.reply()
            assert (reply.body, reply.headers["connection"]) == (b"kept", "close")
            assert await busy.ended()
            assert await stopping == 0

    async def test_a_request_that_has_just_arrived_is_answered(self) -> None:
        handler = HttpEcho()
        server = HttpServer(handler, LOOPBACK, engine=peers.ENGINE)
        await server.start()
        async with RawHttp.to(server.address) as peer:
            await peer.post("/")
            sock = peer.writer.get_extra_info("socket")
            os.write(sock.fileno(), post("/", b"late"))  # there before the server hears of it
            assert await server.stop(10) == 0
            reply = await peer.reply()
            assert (reply.body, reply.headers["connection"]) == (b"late", "close")

    async def test_a_body_on_its_way_may_arrive(self) -> None:
        handler = HttpEcho()
        server = HttpServer(handler, LOOPBACK, engine=peers.ENGINE)
        await server.start()
        async with RawHttp.to(server.address) as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
            await until(lambda: handler.heads)
            stopping = asyncio.create_task(server.stop(10))
            await asyncio.sleep(0.05)
            await peer.send(b"cd")
            assert (await peer.reply()).body == b"abcd"
            assert await stopping == 0

    async def test_the_rest_is_cut_and_counted(self) -> None:
        handler = HttpEcho()
        server = HttpServer(handler, LOOPBACK, engine=peers.ENGINE)
        await server.start()
        async with RawHttp.to(server.address) as first, RawHttp.to(server.address) as second:
            for peer in (first, second):
                await peer.send(post("/wait"))
            await until(lambda: len(handler.served) >= 2)
            assert await server.stop(0.1) == 2
            assert await first.ended()
            assert await second.ended()
        await soon(handler.cancelled)
