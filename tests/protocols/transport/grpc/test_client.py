"""The native gRPC client against servers that say exactly what a test says, nginx, and servers that misbehave."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import struct
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.grpc import client_connection
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.grpc.client_call import StreamClientCall, UnaryClientCall
from interlingua.protocols.transport.grpc.client_connection import GrpcClientConnection
from interlingua.protocols.transport.grpc.client_errors import ClientErrors
from interlingua.protocols.transport.grpc.client_headers import CallBlocks, timeout_text
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.hpack_encoder import HpackEncoder
from interlingua.protocols.wire import Buffer, ConnectionFailedError, GrpcAnswer, GrpcRequest
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.ports import free_port
from tests.protocols.transport.grpc.scripted import (
    Peer,
    Script,
    answer,
    headers,
    scripted,
    trailers,
)
from tests.protocols.transport.h2.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    block,
    frame,
    message,
    settings,
    window_update,
)
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho
from tests.waiting import until

MIB = 1 << 20
CALL, WAIT, STREAM = (f"/test.Echo/{name}" for name in ("Call", "Wait", "Stream"))


@asynccontextmanager
async def client(address: str, **options: Any) -> AsyncIterator[GrpcChannelClient]:
    made = GrpcChannelClient(parse_url(address, "grpc"), ClientOptions(**options))
    try:
        yield made
    finally:
        await made.close()


def request(content: bytes = b"x", secs: float = 10.0, method: str = CALL, **metadata: str) -> GrpcRequest:
    context = Context(deadline=time.monotonic() + secs)
    return GrpcRequest(method, content, {key.replace("_", "-"): metadata[key] for key in metadata}, context)


def saying(*parts: bytes) -> Script:
    """Answers every call with ``parts``, which are for stream 1 of a connection."""

    async def script(peer: Peer) -> None:
        await peer.call()
        peer.send(*parts)

    return script


async def told(script: Script, asked: GrpcRequest | None = None, **options: Any) -> GrpcAnswer:
    async with scripted(script) as server, client(server.address, **options) as sender:
        return await sender.send(asked or request())


async def refused(script: Script, secs: float = 10.0, **options: Any) -> InferenceError:
    with pytest.raises(InferenceError) as error:
        await told(script, request(secs=secs), **options)
    return error.value


def grpc_code(code: int, *parts: bytes) -> tuple[bytes, int]:
    return b"".join(parts), code


STATUSES: dict[str, tuple[bytes, int]] = {
    "ok": grpc_code(0, answer(1)),
    "trailers_only": grpc_code(5, trailers(1, (":status", "200"), ("grpc-status", "5"))),
    "after_a_message": grpc_code(
        9, headers(1), frame(DATA, 0, 1, message(b"x")), trailers(1, ("grpc-status", "9"))
    ),
    "interim_answers_first": grpc_code(
        0, frame(HEADERS, END_HEADERS, 1, block([(":status", "103")])) * 3, answer(1)
    ),
    "no_number": grpc_code(2, headers(1), trailers(1, ("grpc-status", "fine"))),
    "no_status": grpc_code(2, headers(1), frame(DATA, 0, 1, message(b"x")), trailers(1, ("a", "b"))),
    "no_trailers": grpc_code(2, headers(1), frame(DATA, END_STREAM, 1, message(b"x"))),
    "no_message": grpc_code(13, headers(1), trailers(1)),
    "two_messages": grpc_code(13, headers(1), frame(DATA, 0, 1, message(b"x") * 2), trailers(1)),
    "cut_short": grpc_code(13, headers(1), frame(DATA, 0, 1, message(b"xyz")[:-1]), trailers(1)),
    "data_before_headers": grpc_code(13, frame(DATA, 0, 1, message(b"x"))),
    "headers_twice": grpc_code(13, headers(1), headers(1)),
    "pseudo_headers_of_a_request": grpc_code(13, headers(1, (":path", "/"))),
    "upper_case": grpc_code(13, headers(1, ("X-A", "b"))),
    "compressed_without_coding": grpc_code(13, headers(1), frame(DATA, 0, 1, message(b"x", 1))),
    "unknown_coding": grpc_code(13, headers(1, ("grpc-encoding", "br"))),
    "garbage_in_coding": grpc_code(
        13, headers(1, ("grpc-encoding", "gzip")), frame(DATA, 0, 1, message(b"x", 1))
    ),
    "not_grpc": grpc_code(
        2, frame(HEADERS, END_HEADERS, 1, block([(":status", "200"), ("content-type", "text/html")]))
    ),
    **{
        f"http_{status}": grpc_code(code, frame(HEADERS, END_HEADERS, 1, block([(":status", str(status))])))
        for status, code in {
            400: 13,
            401: 16,
            403: 7,
            404: 12,
            418: 2,
            429: 14,
            500: 2,
            502: 14,
            503: 14,
            504: 14,
        }.items()
    },
    "http_404_alone": grpc_code(12, trailers(1, (":status", "404"))),
    **{
        f"reset_{reset}": grpc_code(code, frame(RST_STREAM, 0, 1, struct.pack(">L", reset)))
        for reset, code in {0: 13, 1: 13, 2: 13, 8: 1, 11: 8, 12: 7, 99: 13}.items()
    },
}


class TestAnswers:
    @pytest.mark.parametrize("name", STATUSES)
    async def test_a_status(self, name: str) -> None:
        sent, code = STATUSES[name]
        got = await told(saying(sent))
        assert got.code == code
        assert code == 0 or got.details or name in ("trailers_only", "after_a_message", "no_number")
        assert bytes(got.message) == (b"" if code else b"x")

    async def test_details_are_decoded(self) -> None:
        details = (("grpc-status", "3"), ("grpc-message", "caf%C3%A9: 100%25%0A"))
        got = await told(saying(trailers(1, (":status", "200"), *details)))
        assert got == GrpcAnswer(code=3, details="café: 100%\n")

    @pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
    async def test_a_compressed_answer(self, coding: str, pack: Callable[[bytes], bytes]) -> None:
        body = frame(DATA, 0, 1, message(pack(b"z" * 5000), 1))
        got = await told(saying(headers(1, ("grpc-encoding", coding)), body, trailers(1)))
        assert got.message == b"z" * 5000
        error = await refused(
            saying(headers(1, ("grpc-encoding", coding)), body, trailers(1)), max_response_bytes=4999
        )
        assert error.code is ErrorCode.TOO_LARGE
        assert "4999 bytes that max_response_bytes of this upstream allows" in error.message

    @pytest.mark.parametrize("size", [4 * MIB, 64 * MIB])
    async def test_a_large_message_both_ways(self, size: int) -> None:
        server = GrpcServer(GrpcEcho(), LOOPBACK)
        await server.start()
        content = bytes(range(256)) * (size // 256)
        async with client(str(server.address)) as sender:
            got = await sender.send(request(content, secs=60))
        await server.stop(0)
        assert got.message == content

    async def test_what_the_server_is_told(self) -> None:
        seen: list[dict[str, str]] = []

        async def script(peer: Peer) -> None:
            for stream in (1, 3):
                seen.append((await peer.call()).fields)
                peer.send(answer(stream))

        async with scripted(script) as server, client(server.address) as sender:
            for _ in range(2):
                await sender.send(request(secs=60, traceparent="00-1", x_bin="é"))
        assert (
            seen[0]
            == seen[1]
            == {
                ":method": "POST",
                ":scheme": "http",
                ":path": CALL,
                ":authority": server.address,
                "te": "trailers",
                "content-type": "application/grpc",
                "grpc-accept-encoding": "identity, gzip, deflate",
                "user-agent": "interlingua",
                "grpc-timeout": "60S",
                "traceparent": "00-1",
                "x-bin": "w6k",
            }
        )

    @pytest.mark.parametrize(
        ("secs", "text"),
        [(0.0001, b"1m"), (0.9994, b"1S"), (1.2341, b"1240m"), (59.9987, b"60S"), (1e12, b"99900000S")],
    )
    def test_a_timeout_is_rounded_up(self, secs: float, text: bytes) -> None:
        assert timeout_text(secs)[0] == text

    @pytest.mark.parametrize("metadata", [{"te": "x"}, {"a": "é"}, {"a": "b\n"}, {":path": "/"}, {"": "a"}])
    async def test_metadata_that_cannot_be_sent(self, metadata: dict[str, str]) -> None:
        async with scripted(saying(answer(1))) as server, client(server.address) as sender:
            with pytest.raises(InferenceError) as error:
                await sender.send(GrpcRequest(CALL, b"", metadata))
            assert error.value.code is ErrorCode.MALFORMED
            assert (await sender.send(request())).code == 0

    async def test_cancelling_resets_the_stream(self) -> None:
        came = asyncio.Event()
        reset: list[int] = []

        async def script(peer: Peer) -> None:
            await peer.call()
            came.set()
            reset.append((await peer.next(RST_STREAM)).code)
            peer.send(answer(1))
            await peer.call()
            peer.send(answer(3, b"second"))

        async with scripted(script) as server, client(server.address) as sender:
            asking = asyncio.ensure_future(sender.send(request()))
            await came.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert (await sender.send(request())).message == b"second"
        assert reset == [8]

    async def test_a_deadline_resets_the_stream_and_keeps_a_connection_that_is_alive(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.call()
            peer.send(frame(PING, 0, 0, bytes(8)))
            assert (await peer.next(RST_STREAM)).code == 8
            await peer.call()
            peer.send(answer(3))

        async with scripted(script) as server, client(server.address) as sender:
            with pytest.raises(InferenceError) as error:
                await sender.send(request(secs=0.3))
            assert error.value.code is ErrorCode.DEADLINE_EXCEEDED
            assert (await sender.send(request())).code == 0
        assert len(server.peers) == 1


class _Transport(asyncio.Transport):
    """Keeps nothing."""

    def write(self, data: Any) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        class _Unix:
            family = 1  # AF_UNIX

            def fileno(self) -> int:
                return -1

        return _Unix() if name == "socket" else default


CONVERSATION = b"".join(
    (
        settings((4, 100), (5, 16_384)),
        headers(3),
        frame(DATA, 0, 3, message(b"a") + message(b"b" * 300)[:100]),
        headers(1, ("grpc-encoding", "gzip")),
        frame(PING, 0, 0, bytes(8)),
        frame(DATA, 0, 1, message(gzip.compress(b"z" * 900, mtime=0), 1)),
        window_update(3, 70_000),
        frame(DATA, 0, 3, message(b"b" * 300)[100:]),
        trailers(1),
        frame(DATA, 0, 3, message(b"")),
        frame(GOAWAY, 0, 0, struct.pack(">LL", 5, 0)),
        trailers(3, ("grpc-status", "11"), ("grpc-message", "over")),
        trailers(5, (":status", "200"), ("grpc-status", "7")),
    )
)


def conversation(pieces: list[bytes]) -> list[Any]:
    """What three calls get from a server that says ``CONVERSATION`` in these pieces."""
    loop = asyncio.new_event_loop()
    try:
        errors = ClientErrors(parse_url("a:1", "grpc"), None)
        connection = GrpcClientConnection(loop, memoryview(b""), "a:1", errors, None, lambda: None)
        connection.connection_made(_Transport())
        calls = UnaryClientCall(connection, None), StreamClientCall(connection, None)
        last = UnaryClientCall(connection, None)
        calls[0].start(connection.headers.block(CALL, None, {}), b"x" * 100_000)
        calls[1].start(connection.headers.block(CALL, None, {}))
        last.start(connection.headers.block(CALL, None, {}), b"x")
        for piece in pieces:
            connection.data_received(piece)

        async def read() -> list[Any]:
            await asyncio.wait((calls[0].waiter, last.waiter))
            return [
                calls[0].ended(),
                [each async for each in calls[1]],
                calls[1].ended(),
                last.ended(),
            ]

        found = loop.run_until_complete(read())
        connection.connection_lost(None)
        return found
    finally:
        loop.close()


class TestCuts:
    expected = (
        GrpcAnswer(b"z" * 900),
        [b"a", b"b" * 300, b""],
        GrpcAnswer(code=11, details="over"),
        GrpcAnswer(code=7),
    )

    @given(st.lists(st.integers(0, len(CONVERSATION)), max_size=12))
    def test_however_it_is_cut(self, cuts: list[int]) -> None:
        places = [0, *sorted(cuts), len(CONVERSATION)]
        assert conversation([CONVERSATION[a:b] for a, b in pairwise(places)]) == list(self.expected)

    def test_byte_by_byte(self) -> None:
        pieces = [CONVERSATION[index : index + 1] for index in range(len(CONVERSATION))]
        assert conversation(pieces) == list(self.expected)


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">LL", last, code))


REFUSED = struct.pack(">L", 7)


class TestConnections:
    async def test_calls_share_one(self) -> None:
        server = GrpcServer(GrpcEcho(), LOOPBACK)
        await server.start()
        async with client(str(server.address)) as sender:
            contents = [b"%d" % index for index in range(200)]
            answers = await asyncio.gather(*(sender.send(request(each)) for each in contents))
            assert [bytes(each.message) for each in answers] == contents
            assert len(server.connections.open) == 1
        await server.stop(0)

    async def test_another_when_the_server_takes_no_more_calls(self) -> None:
        async def script(peer: Peer) -> None:
            for stream in (1, 3):
                await peer.call()
                await asyncio.sleep(0.2)
                peer.send(answer(stream))

        async with scripted(script, settings((3, 1))) as server, client(server.address) as sender:
            answers = await asyncio.gather(*(sender.send(request()) for _ in range(3)))
            assert [each.code for each in answers] == [0, 0, 0]
            assert 2 <= len(server.peers) <= 3

    async def test_calls_wait_for_their_turn_within_their_deadline(self) -> None:
        async def script(peer: Peer) -> None:
            stream = 1
            while True:
                await peer.call()
                peer.send(answer(stream))
                stream += 2

        async with scripted(script, settings((3, 1))) as server, client(server.address) as sender:
            answers = await asyncio.gather(*(sender.send(request()) for _ in range(200)))
            assert {each.code for each in answers} == {0} and len(server.peers) <= 16

        async with scripted(script, settings((3, 0))) as server, client(server.address) as sender:
            with pytest.raises(InferenceError) as error:
                await sender.send(request(secs=0.3))
            assert error.value.code is ErrorCode.DEADLINE_EXCEEDED

    @pytest.mark.parametrize("unprocessed", [goaway(0), frame(RST_STREAM, 0, 1, REFUSED)])
    async def test_a_call_that_was_not_processed_is_made_again(self, unprocessed: bytes) -> None:
        async def script(peer: Peer) -> None:
            first = await peer.call()
            peer.send(unprocessed if not peer.number else answer(first.stream))
            while True:
                peer.send(answer((await peer.call()).stream))

        for streamed in (False, True):
            async with scripted(script) as server, client(server.address) as sender:
                if streamed:
                    (got,) = [each async for each in sender.stream(request())]
                else:
                    got = await sender.send(request())
                assert got == GrpcAnswer(b"x") and len(server.peers) <= 2

    @pytest.mark.parametrize("unprocessed", [goaway(0), goaway(0) * 50, frame(RST_STREAM, 0, 1, REFUSED)])
    async def test_but_not_for_ever(self, unprocessed: bytes) -> None:
        async def script(peer: Peer) -> None:
            stream = 1
            while True:
                await peer.call()
                peer.send(unprocessed[:8] + bytes((unprocessed[8] and stream,)) + unprocessed[9:])
                stream += 2

        error = await refused(script)
        assert isinstance(error, ConnectionFailedError)
        assert (error.code, error.sent) == (ErrorCode.UNAVAILABLE, False)

    @pytest.mark.parametrize("unprocessed", [goaway(0), frame(RST_STREAM, 0, 1, REFUSED)])
    async def test_a_call_whose_answer_has_begun_is_not_made_again(self, unprocessed: bytes) -> None:
        async def script(peer: Peer) -> None:
            await peer.call()
            peer.send(headers(1), frame(DATA, 0, 1, message(b"a")), unprocessed)
            peer.send(answer((await peer.call()).stream))

        for streamed in (False, True):
            async with scripted(script) as server, client(server.address) as sender:
                if streamed:
                    got = [each async for each in sender.stream(request())]
                else:
                    got = [await sender.send(request())]
                assert [each.code for each in got][-1] == 14 and len(got) == 1 + streamed
                assert len(server.peers) == 1

    async def test_a_reset_call_makes_room_for_one_that_waits(self) -> None:
        resets = 0

        async def script(peer: Peer) -> None:
            nonlocal resets
            await peer.call()
            await asyncio.sleep(0.2)
            peer.send(frame(RST_STREAM, 0, 1, struct.pack(">L", 2)))
            resets += 1
            while True:
                peer.send(answer((await peer.call()).stream))

        async with scripted(script, settings((3, 1))) as server, client(server.address) as sender:
            answers = await asyncio.gather(*(sender.send(request()) for _ in range(32)))
            codes = sorted(each.code for each in answers)
            # the last connections may have come when no call was left for them
            assert 0 < resets <= len(server.peers) <= 16
            assert codes == [0] * (32 - resets) + [13] * resets

    async def test_a_lowered_limit_does_not_hide_room_on_another_connection(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.call()
            await peer.call()
            await asyncio.sleep(0.3)
            peer.send(settings((3, 0)) if peer.number else b"")
            await asyncio.sleep(0.3)
            while not peer.number:
                peer.send(answer(1) + answer(3))
                peer.send(answer((await peer.call()).stream))

        async with scripted(script, settings((3, 2))) as server, client(server.address) as sender:
            calls = [asyncio.ensure_future(sender.send(request())) for _ in range(33)]
            looks = 0
            while sum(each.done() for each in calls) < 3 and looks < 300:
                await asyncio.sleep(0.1)
                looks += 1
            assert len(server.peers) == 16
            answered = [each.result().code for each in calls if each.done()]
        await asyncio.gather(*calls, return_exceptions=True)
        assert answered == [0, 0, 0]

    async def test_a_connection_that_leaves_closes_after_its_last_call_is_reset(self) -> None:
        left = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.call()
            peer.send(goaway(1), frame(RST_STREAM, 0, 1, struct.pack(">L", 2)))
            while await peer.reader.read(1 << 16):
                pass
            left.set()

        async with scripted(script) as server, client(server.address) as sender:
            assert (await sender.send(request())).code == 13
            await asyncio.wait_for(left.wait(), 30)

    async def test_a_goaway_lets_running_calls_end(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.call()
            peer.send(goaway(1))
            await asyncio.sleep(0.1)
            peer.send(answer(1, b"%d" % peer.number))

        async with scripted(script) as server, client(server.address) as sender:
            first = asyncio.ensure_future(sender.send(request()))
            await asyncio.sleep(0.05)
            second = await sender.send(request())
            assert ((await first).message, second.message) == (b"0", b"1")

    async def test_a_server_that_leaves_with_calls_unanswered(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.call()
            peer.send(frame(GOAWAY, 0, 0, struct.pack(">LL", 1, 11) + b"too_many_pings"))
            peer.writer.close()

        error = await refused(script)
        assert isinstance(error, ConnectionFailedError)
        assert (error.code, error.sent) == (ErrorCode.UNAVAILABLE, True)
        assert "GOAWAY ENHANCE_YOUR_CALM too_many_pings" in error.message

    async def test_a_server_that_never_says_that_it_speaks_http_2(self) -> None:
        async def script(peer: Peer) -> None:
            await asyncio.sleep(5)

        async with (
            scripted(script, b"") as server,
            client(server.address, connect_timeout_secs=0.3) as sender,
        ):
            with pytest.raises(ConnectionFailedError, match="did not begin with HTTP/2") as error:
                await sender.send(request())
        assert not error.value.sent

    async def test_a_smaller_header_table(self) -> None:
        seen: list[str] = []

        async def script(peer: Peer) -> None:
            for stream in (1, 3, 5):
                seen.append((await peer.call()).fields[":path"])
                peer.send(settings((1, 0)) if stream == 1 else b"", answer(stream))

        async with scripted(script) as server, client(server.address) as sender:
            for _ in range(3):
                await sender.send(request())
        assert seen == [CALL] * 3

    async def test_closing_fails_what_waits(self) -> None:
        async with scripted(saying(), settings((3, 0))) as server:
            async with client(server.address) as sender:
                asking = asyncio.ensure_future(sender.send(request(secs=5)))
                await asyncio.sleep(0.3)
            with pytest.raises(ConnectionFailedError) as error:
                await asking
            assert not error.value.sent
            opened = len(server.peers)
            await asyncio.sleep(0.1)
            assert len(server.peers) == opened

    async def test_closing_fails_what_runs(self) -> None:
        async with scripted(saying()) as server:
            async with client(server.address) as sender:
                asking = asyncio.ensure_future(sender.send(request()))
                await asyncio.sleep(0.1)
            with pytest.raises(ConnectionFailedError):
                await asking

    async def test_what_is_unsent_at_the_end_is_read_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A connection that has ended is not aborted."""
        monkeypatch.setattr(client_connection, "_GOODBYE_SECS", 0.3)
        begun, read = asyncio.Event(), asyncio.Event()
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))

        async def script(peer: Peer) -> None:
            peer.send(window_update(0, 1 << 30))
            await peer.call()
            begun.set()
            await read.wait()

        async with scripted(script, settings((4, 1 << 30))) as server:
            async with client(server.address) as sender:
                asking = asyncio.ensure_future(sender.send(request(bytes(32 * MIB))))
                await begun.wait()
                closing = asyncio.ensure_future(sender.close())
                await asyncio.sleep(0)
                read.set()
                await closing
            with pytest.raises(ConnectionFailedError):
                await asking
            await asyncio.sleep(0.4)
        assert not failures


async def asked(*contents: bytes) -> AsyncIterator[Buffer]:
    for each in contents:
        yield each


class TestStreamedRequests:
    @asynccontextmanager
    async def echo(self) -> AsyncIterator[GrpcChannelClient]:
        server = GrpcServer(GrpcEcho(), LOOPBACK)
        await server.start()
        async with client(str(server.address)) as sender:
            yield sender
        await server.stop(0)

    async def test_messages_pass_one_by_one(self) -> None:
        turn = asyncio.Queue[bytes]()

        async def messages() -> AsyncIterator[Buffer]:
            while content := await turn.get():
                yield content

        async with self.echo() as sender:
            turn.put_nowait(b"1")
            got = []
            async for each in sender.stream(request(method=STREAM), messages()):
                got.append(bytes(each.message))
                turn.put_nowait(b"%d" % (len(got) + 1) if len(got) < 5 else b"")
        assert got == [b"1", b"2", b"3", b"4", b"5"]

    async def test_large_messages_wait_for_the_server(self) -> None:
        content = bytes(3 * MIB)
        async with self.echo() as sender:
            sizes = [
                len(each.message)
                async for each in sender.stream(request(method=STREAM), asked(*[content] * 8))
            ]
        assert sizes == [3 * MIB] * 8

    async def test_what_the_messages_raise_ends_the_call(self) -> None:
        reset: list[int] = []
        done = asyncio.Event()

        async def messages() -> AsyncIterator[Buffer]:
            yield b"x"
            raise InferenceError(ErrorCode.MALFORMED, "no message")

        async def script(peer: Peer) -> None:
            await peer.call()
            reset.append((await peer.next(RST_STREAM)).code)
            done.set()

        async with scripted(script) as server, client(server.address) as sender:
            with pytest.raises(InferenceError, match="no message"):
                async for _ in sender.stream(request(method=STREAM), messages()):
                    pass
            await asyncio.wait_for(done.wait(), 30)
        assert reset == [8]

    async def test_a_reader_that_stops_holds_the_window(self) -> None:
        sent = 0

        async def script(peer: Peer) -> None:
            nonlocal sent
            await peer.call()
            peer.send(headers(1))
            for _ in range(256):
                peer.send(frame(DATA, 0, 1, message(bytes(MIB - 5))))
                await peer.writer.drain()
                sent += MIB

        async with scripted(script) as server, client(server.address) as sender:
            answers = sender.stream(request(method=STREAM))
            assert len((await anext(answers)).message) == MIB - 5
            await until(lambda: sent >= 64 * MIB, 60)
            (connection,) = sender._connections
            # the server ignores the window: its stream is reset, the connection goes on
            assert connection.usable
            await answers.aclose()


class TestMisbehavingServers:
    async def test_memory_follows_what_has_come_not_what_is_claimed(self) -> None:
        def buffered(call: Any) -> int:
            return len(call.sink.buffer)

        claim = headers(1) + frame(DATA, 0, 1, struct.pack(">BL", 0, 2**31 - 1) + bytes(1000))
        async with scripted(saying(claim)) as server, client(server.address) as sender:
            asking = asyncio.ensure_future(sender.send(request(secs=5)))
            await asyncio.sleep(0.2)
            (connection,) = sender._connections
            (call,) = connection.connection.streams.values()
            assert buffered(call) <= 8 * MIB
            asking.cancel()


NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
NGHTTPD = shutil.which("nghttpd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")

NGINX_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 20;
    http2_max_concurrent_streams 4;
    server {{
        listen 127.0.0.1:{port} http2;
        location / {{ grpc_pass grpc://{upstream}; }}
        location /test.Lost/ {{ return 404; }}
    }}
}}
"""


@asynccontextmanager
async def running(command: list[str], port: int) -> AsyncIterator[str]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)


class TestOtherServers:
    @pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
    async def test_nginx(self, tmp_path: Path) -> None:
        """Its connections end after 20 requests, each with a GOAWAY, and take 4 calls at a time."""
        assert NGINX is not None
        server = GrpcServer(GrpcEcho(), LOOPBACK)
        await server.start()
        port, path = free_port(), tmp_path / "nginx.conf"
        path.write_text(NGINX_CONFIG.format(folder=tmp_path, port=port, upstream=server.address))
        command = [NGINX, "-e", str(tmp_path / "error.log"), "-p", str(tmp_path), "-c", str(path)]
        async with running(command, port) as address, client(address) as sender:
            contents = [b"%d" % index * 1000 for index in range(150)] + [bytes(5 * MIB)] * 4
            gate = asyncio.Semaphore(30)

            async def ask(content: bytes) -> bytes:
                async with gate:
                    return bytes((await sender.send(request(content, secs=60))).message)

            assert await asyncio.gather(*map(ask, contents)) == contents
            assert (await sender.send(request(method="/test.Lost/X"))).code == 12
            await server.stop(0)
            assert (await sender.send(request())).code == 14

    @pytest.mark.skipif(NGHTTPD is None, reason="nghttpd is not installed")
    async def test_nghttpd(self, tmp_path: Path) -> None:
        """It sends bodies back, but not as gRPC."""
        assert NGHTTPD is not None
        port = free_port()
        command = [NGHTTPD, "--no-tls", "--echo-upload", "-d", str(tmp_path), str(port)]
        async with running(command, port) as address, client(address) as sender:
            for size in (0, 10, 100_000, 5 * MIB):
                answers = await asyncio.gather(*(sender.send(request(bytes(size))) for _ in range(8)))
                assert {each.code for each in answers} == {2}
                assert all("content-type" in each.details for each in answers)


def test_no_metadata_begins_or_ends_with_a_blank() -> None:
    block = CallBlocks(HpackEncoder(), "x").block("/m", None, {"a": " b c "})
    assert ("a", "b c") in Decoder().decode(block)
