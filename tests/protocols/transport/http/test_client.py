"""The HTTP client against servers that behave, and against servers that do not."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.transport.address import Address, Url, parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.transport.http import client as native_client
from interlingua.protocols.transport.http import library_client
from interlingua.protocols.transport.http.client import REST_SECS
from interlingua.protocols.wire import HttpAnswer, HttpCall
from interlingua.protocols.wire_clients import HttpClient
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.protocols.transport import peers
from tests.protocols.transport.peers import HttpEcho, serving

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("client_engine")
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def client(url: str | Address, **options: float) -> AsyncIterator[HttpClient]:
    made: Any = CLIENTS["http", peers.CLIENT_ENGINE](parse_url(str(url)), ClientOptions(**options))  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def behaving(behaviour: Behaviour) -> AsyncIterator[str]:
    """A server that treats each connection as ``behaviour`` says; its address."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            await behaviour(reader, writer)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(answered(reader, writer))
        # also where it never began: the client was gone at once
        task.add_done_callback(lambda _: writer.close())
        running.append(task)

    running: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for _ in range(3):  # what is accepted in this turn begins in the next
            await asyncio.sleep(0)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)


def answering(*answer: bytes, pause: float = 0) -> Behaviour:
    """Answers the first request of a connection with these bytes, then closes it."""

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in answer:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return behaviour


def a_post(*parts: bytes | memoryview, **options: object) -> HttpCall:
    return HttpCall("POST", "/", parts=parts, **options)  # type: ignore[arg-type]


async def refused(behaviour: Behaviour, request: HttpCall | None = None, **options: float) -> InferenceError:
    async with behaving(behaviour) as url, client(url, **options) as sender:
        with pytest.raises(InferenceError) as error:
            await sender.send(request or a_post(b"x"))
        assert url in error.value.message
        return error.value


class TestWhatGoesOut:
    async def test_is_what_was_given(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, client(f"http://{server.address}/base") as sender:
            request = HttpCall("POST", "/a%2Fb/%C3%A9", "x=%20", {"x-some": "Value"}, parts=(b"ab", b"cd"))
            reply = await sender.send(request)
        assert (reply.status, reply.headers["x-kind"], reply.body) == (200, "echo", b"abcd")
        (seen,) = handler.served
        assert (seen.method, seen.path, seen.query) == ("POST", "/base/a%2Fb/%C3%A9", "x=%20")
        assert {name.lower() for name in seen.headers} == {"host", "content-length", "x-some"}

    async def test_a_get_has_no_body(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server, client(server.address) as sender:
            assert (await sender.send(HttpCall("GET", "/v2"))).body == b""
        assert {name.lower() for name in handler.served[0].headers} == {"host"}

    async def test_large_parts_and_wide_views(self) -> None:
        parts = (b"a" * 10, memoryview(b"12345678" * MIB).cast("d"), memoryview(b""), b"z" * MIB)
        async with serving(HttpEcho()) as server, client(server.address) as sender:
            assert (await sender.send(a_post(*parts))).body == b"".join(parts)

    async def test_over_a_unix_socket(self, tmp_path: Path) -> None:
        address = Address(path=str(tmp_path / "x.sock"))
        async with serving(HttpEcho(), address), client(address) as sender:
            assert (await sender.send(a_post(b"x"))).body == b"x"

    async def test_a_proxy_in_the_environment_is_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        async with serving(HttpEcho()) as server, client(server.address) as sender:
            assert (await sender.send(a_post(b"x"))).status == 200

    async def test_a_line_break_does_not(self) -> None:
        async with serving(HttpEcho()) as server, client(server.address) as sender:
            with pytest.raises(InferenceError, match="cannot be written as HTTP") as error:
                await sender.send(a_post(b"x", headers={"a": "b\r\nc: d"}))
        assert error.value.code is ErrorCode.MALFORMED


class TestConnections:
    async def test_are_kept(self) -> None:
        connections = 0

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            for _ in range(3):
                await reader.readuntil(b"\r\n\r\nx")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        async with behaving(behaviour) as url, client(url) as sender:
            for _ in range(3):
                assert (await sender.send(a_post(b"x"))).body == b"ok"
        assert connections == 1

    @pytest.mark.parametrize(("repeatable", "connections"), [(True, 2), (False, 1)])
    async def test_a_kept_one_that_was_closed_is_replaced_where_that_is_safe(
        self, repeatable: bool, connections: int
    ) -> None:
        seen = 0

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal seen
            seen += 1
            await reader.readuntil(b"\r\n\r\nx")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await reader.readuntil(b"\r\n\r\nx")  # and closes it without a word

        async with behaving(behaviour) as url, client(url) as sender:
            await sender.send(a_post(b"x"))
            second = sender.send(a_post(b"x", repeatable=repeatable))
            if repeatable:
                assert (await second).body == b"ok"
            else:
                with pytest.raises(InferenceError, match="without an answer"):
                    await second
        assert seen == connections

    @pytest.mark.parametrize("status", [500, 501, 502, 504])
    async def test_one_that_a_server_may_close_after_an_error_rests(
        self, status: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """uvicorn closes a connection behind the answer to a request at which an application has raised."""
        for module in (native_client, library_client):
            monkeypatch.setattr(module, "REST_SECS", 60)
        connections, lost = 0, 0

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections, lost
            connections += 1
            while True:
                request = await reader.readuntil(b"\r\n\r\nx")
                if b"/fail" not in request:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                writer.write(f"HTTP/1.1 {status} Error\r\nContent-Length: 2\r\n\r\nno".encode())
                lost += bool(await reader.read(1))  # until the client has closed it
                return

        async with behaving(behaviour) as url, client(url) as sender:
            for _ in range(3):
                assert (await sender.send(HttpCall("POST", "/fail", parts=(b"x",)))).status == status
                assert (await sender.send(a_post(b"x"))).body == b"ok"
                assert (await sender.send(a_post(b"x"))).body == b"ok"
            failing = asyncio.gather(
                *(sender.send(HttpCall("POST", "/fail", parts=(b"x",))) for _ in range(4))
            )
            assert [each.status for each in await failing] == [status] * 4
            assert (await sender.send(a_post(b"x"))).body == b"ok"
        assert lost == 0

    async def test_one_that_the_server_closes_during_its_rest_is_not_used(self) -> None:
        connections = 0
        ended = asyncio.Event()

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await reader.readuntil(b"\r\n\r\nx")
            if connections == 1:
                writer.write(b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n")
                writer.write_eof()
                await reader.read()
                ended.set()
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        async with behaving(behaviour) as url, client(url) as sender:
            assert (await sender.send(a_post(b"x"))).status == 500
            await ended.wait()
            await asyncio.sleep(2 * REST_SECS)
            assert (await sender.send(a_post(b"x"))).body == b"ok"
        assert connections == 2

    @pytest.mark.parametrize(("status", "rest_secs"), [(500, 2 * REST_SECS), (503, 0), (429, 0), (400, 0)])
    async def test_one_that_stays_open_after_an_error_is_kept(self, status: int, rest_secs: float) -> None:
        """After its rest, if that is an error for which it rests; an overloaded server keeps its connections."""
        connections = 0

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            while True:
                await reader.readuntil(b"\r\n\r\nx")
                writer.write(f"HTTP/1.1 {status} Error\r\nContent-Length: 2\r\n\r\nno".encode())

        async with behaving(behaviour) as url, client(url) as sender:
            for _ in range(3):
                assert (await sender.send(a_post(b"x"))).status == status
                await asyncio.sleep(rest_secs)
        assert connections == 1

    async def test_a_new_one_that_is_closed_is_not(self) -> None:
        seen = 0

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal seen
            seen += 1
            await reader.readuntil(b"\r\n\r\nx")

        error = await refused(behaviour, a_post(b"x", repeatable=True))
        assert error.code is ErrorCode.UNAVAILABLE
        assert seen == 1


class TestReplies:
    async def test_redirects_are_answers(self) -> None:
        answer = HttpAnswer(302, (("location", "/elsewhere"), ("set-cookie", "a=b")))
        handler = HttpEcho(answers={"/": answer})
        async with serving(handler) as server, client(server.address) as sender:
            for _ in range(2):
                reply = await sender.send(a_post(b"x"))
                assert (reply.status, reply.headers["location"]) == (302, "/elsewhere")
        assert len(handler.served) == 2
        assert "cookie" not in handler.served[1].headers

    async def test_chunks_are_joined(self) -> None:
        answer = answering(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"
        )
        async with behaving(answer) as url, client(url) as sender:
            assert (await sender.send(a_post(b"x"))).body == b"abcde"

    async def test_a_reply_may_end_with_the_connection(self) -> None:
        async with behaving(answering(b"HTTP/1.0 200 OK\r\n\r\nabc", b"def")) as url, client(url) as sender:
            assert (await sender.send(a_post(b"x"))).body == b"abcdef"

    @pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
    async def test_are_decompressed(self, coding: str, compress: Callable[[bytes], bytes]) -> None:
        plain = b"plain" * 1000
        answer = HttpAnswer(200, (("content-encoding", coding),), (compress(plain),))
        async with serving(HttpEcho(answers={"/": answer})) as server:
            async with client(server.address) as sender:
                assert (await sender.send(a_post(b"x"))).body == plain
            async with client(server.address, max_response_bytes=4999) as sender:
                with pytest.raises(
                    InferenceError, match="more than the 4999 that max_response_bytes"
                ) as error:
                    await sender.send(a_post(b"x"))
                assert error.value.code is ErrorCode.TOO_LARGE

    async def test_broken_compression(self) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"
        assert (await refused(answering(answer))).code is ErrorCode.BAD_UPSTREAM

    @pytest.mark.parametrize(
        "answer",
        [
            b"Content-Length: 99999999999\r\n\r\n",
            b"Content-Length: 1001\r\n\r\n" + b"x" * 1001,
        ],
    )
    async def test_oversized(self, answer: bytes) -> None:
        error = await refused(answering(b"HTTP/1.1 200 OK\r\n" + answer), max_response_bytes=1000)
        assert error.code is ErrorCode.TOO_LARGE
        assert "more than the 1000 that max_response_bytes of this upstream allows" in error.message

    async def test_oversized_without_saying_so(self) -> None:
        chunk = b"190\r\n" + b"x" * 400 + b"\r\n"
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        error = await refused(answering(head, chunk, chunk, chunk), max_response_bytes=1000)
        assert error.code is ErrorCode.TOO_LARGE


class TestFailures:
    async def test_refused(self) -> None:
        async with behaving(answering()) as url:
            pass
        async with client(url) as sender:
            with pytest.raises(InferenceError) as error:
                await sender.send(a_post(b"x"))
        assert error.value.code is ErrorCode.UNAVAILABLE
        assert error.value.message == f"the upstream at {url} cannot be reached: Connection refused"

    async def test_no_such_host(self) -> None:
        async with client("no-such-host.invalid:80") as sender:
            with pytest.raises(InferenceError, match="no-such-host.invalid:80 cannot be reached") as error:
                await sender.send(a_post(b"x"))
        assert error.value.code is ErrorCode.UNAVAILABLE

    async def test_no_such_socket(self, tmp_path: Path) -> None:
        async with client(f"unix:{tmp_path}/none.sock") as sender:
            with pytest.raises(InferenceError, match="cannot be reached: No such file") as error:
                await sender.send(a_post(b"x"))
        assert error.value.code is ErrorCode.UNAVAILABLE

    @pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"])
    async def test_deadline(self, answer: bytes) -> None:
        context = Context(deadline=time.monotonic() + 0.1)
        error = await refused(answering(answer, pause=2), a_post(b"x", context=context))
        assert error.code is ErrorCode.DEADLINE_EXCEEDED

    async def test_deadline_that_has_passed(self) -> None:
        context = Context(deadline=time.monotonic() - 1)
        assert (await refused(answering(), a_post(b"x", context=context))).code is ErrorCode.DEADLINE_EXCEEDED

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            (b"", ErrorCode.UNAVAILABLE),
            (b"HTTP/1.1 200 OK\r\nContent-Le", ErrorCode.UNAVAILABLE),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", ErrorCode.UNAVAILABLE),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", ErrorCode.UNAVAILABLE),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ErrorCode.BAD_UPSTREAM),
            (b"SSH-2.0-OpenSSH_9\r\n", ErrorCode.BAD_UPSTREAM),
            (b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n", ErrorCode.BAD_UPSTREAM),
        ],
    )
    async def test_broken(self, answer: bytes, code: ErrorCode) -> None:
        error = await refused(answering(answer))
        assert error.code is code, error.message
        assert error.retryable is (code is ErrorCode.UNAVAILABLE)

    async def test_chunks_that_break_after_the_head(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        error = await refused(answering(head, b"2\r\nab\r\n", b"zz\r\n", pause=0.1))
        assert error.code is ErrorCode.UNAVAILABLE
        assert "broke off in the middle of its answer" in error.message

    async def test_being_cancelled_ends_the_connection(self) -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\nx")
            began.set()
            await reader.read()
            ended.set()

        async with behaving(behaviour) as url, client(url) as sender:
            asking = asyncio.ensure_future(sender.send(a_post(b"x")))
            await began.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.wait_for(ended.wait(), 30)

    async def test_close_without_a_request(self) -> None:
        await CLIENTS["http", peers.CLIENT_ENGINE](Url(Address("h", 1))).close()


async def test_https_is_never_called_without_tls() -> None:
    lines = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        url = parse_url(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        client = CLIENTS["http", peers.CLIENT_ENGINE](url)
        with pytest.raises(InferenceError):
            await client.send(HttpCall("GET", "/"))
        await client.close()
    assert lines == [b"\x16"]  # a TLS record of a handshake (RFC 8446, section 5.1)
