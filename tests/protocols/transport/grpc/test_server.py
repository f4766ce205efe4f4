"""What the gRPC listener says to clients that send what no library would, and what they cannot make it do."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc.aio
import pytest

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.options import Http2Options
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcHandler, GrpcRequest
from tests.protocols.transport.h2.peer import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    START,
    RawH2,
    block,
    call,
    fields,
    frame,
    head,
    message,
    settings,
    window_update,
)
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, stalling
from tests.waiting import steady, until

CALL, WAIT, STREAM = (f"/test.Echo/{name}" for name in ("Call", "Wait", "Stream"))
MIB = 1 << 20


@asynccontextmanager
async def serving(
    handler: Any = None, address: Address = LOOPBACK, **options: Any
) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(handler or GrpcEcho(), address, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@asynccontextmanager
async def raw(start: bytes = START, **options: Any) -> AsyncIterator[RawH2]:
    """A raw connection to a server of its own."""
    async with serving(**options) as server, RawH2.to(server.address, start) as connection:
        yield connection


def narrow(server: GrpcServer) -> None:
    """Have the kernel hold little of what is sent on connections to come."""
    for sock in server._listener.sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


class TestCalls:
    async def test_one(self) -> None:
        async with raw() as client:
            await client.send(call(1, b"hello"))
            answer = await client.answer()
        assert answer.head == {":status": "200", "content-type": "application/grpc"}
        assert answer.body == message(b"hello")
        assert answer.trailers == {"grpc-status": "0"} and answer.reset is None

    async def test_many_in_one_packet(self) -> None:
        streams = range(1, 401, 2)
        async with raw() as client:
            await client.send(*(call(stream, b"%d" % stream) for stream in streams))
            answers = await client.answers(streams)
        assert {stream: answer.body for stream, answer in answers.items()} == {
            stream: message(b"%d" % stream) for stream in streams
        }

    async def test_a_thousand_at_work(self) -> None:
        handler = GrpcEcho()
        streams = range(1, 2001, 2)
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(*(call(stream, b"%d" % stream, WAIT) for stream in streams))
            await until(lambda: len(handler.served) == 1000)
            assert server.at_work == 1000
            handler.release.set()
            answers = await client.answers(streams)
            assert server.at_work == 0
        assert all(answers[stream].body == message(b"%d" % stream) for stream in streams)

    async def test_a_message_in_many_frames(self) -> None:
        sent = message(b"abcdefghij" * 500)
        async with raw() as client:
            await client.send(head(1))
            for start in range(0, len(sent), 7):
                await client.send(frame(DATA, 0, 1, sent[start : start + 7]))
            await client.send(frame(DATA, END_STREAM, 1))
            assert (await client.answer()).body == sent

    async def test_it_begins_with_its_first_message_and_passes_over_others(self) -> None:
        async with raw() as client:
            await client.send(head(1), frame(DATA, 0, 1, message(b"first")))
            answer = await client.answer()
            assert answer.body == message(b"first") and answer.status == 0
            assert (await client.kind(RST_STREAM)).code == 0
            await client.send(head(3), frame(DATA, END_STREAM, 3, message(b"one") + message(b"two")))
            assert (await client.answer(3)).body == message(b"one")

    async def test_names_that_come_twice_and_text_that_is_not_utf_8(self) -> None:
        handler = GrpcEcho()
        more = (("a", "1"), ("a", "2"), ("b", "é"), ("x-bin", "AA"), ("grpc-accept-encoding", "gzip"))
        sent = block(fields(CALL)) + b"\0\1c\1\xe9"
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"", CALL, *more))
            await client.answer()
            await client.send(frame(HEADERS, END_HEADERS, 3, sent), frame(DATA, END_STREAM, 3, message(b"")))
            await client.answer(3)
        first, second = handler.served
        assert first.metadata == {"a": "2", "b": "é"}
        assert second.metadata == {"c": "é"}

    @pytest.mark.parametrize(
        ("host", "spelled"), [("127.0.0.1", "ipv4:127.0.0.1:"), ("::1", "ipv6:%5B::1%5D:")]
    )
    async def test_where_a_client_is(self, host: str, spelled: str) -> None:
        if ":" in host and not socket.has_dualstack_ipv6():
            pytest.skip("there is no IPv6 here")
        handler = GrpcEcho()
        async with (
            serving(handler, Address("", 0)) as server,
            RawH2.to(Address(host, server.address.port)) as client,
        ):
            await client.send(call(1))
            await client.answer()
        assert handler.served[0].context.peer.startswith(spelled)

    async def test_over_a_unix_socket(self, tmp_path: Any) -> None:
        handler = GrpcEcho()
        address = Address(path=str(tmp_path / "s"))
        async with serving(handler, address), RawH2.to(address) as client:
            await client.send(call(1))
            await client.answer()
        assert handler.served[0].context.peer == "unix:"


class TestRefusals:
    @pytest.mark.parametrize(
        ("sent", "status", "details"),
        [
            (call(1, b"", "/test.Echo/No"), 12, "Method not found!"),
            (call(1, b"", CALL, ("grpc-timeout", "1x")), 13, "Error parsing 'grpc-timeout' metadata"),
            (call(1, b"", CALL, ("grpc-timeout", "123456789S")), 13, "Error parsing 'grpc-timeout' metadata"),
            (
                call(1, b"", CALL, ("grpc-encoding", "snappy")),
                12,
                "Compression algorithm 'snappy' is not known",
            ),
            (head(1, flags=END_HEADERS | END_STREAM), 12, "a unary call has one message, not none"),
            (head(1) + frame(DATA, END_STREAM, 1), 12, "a unary call has one message, not none"),
            (head(1) + frame(DATA, END_STREAM, 1, b"\0\0"), 13, "the message of the call is cut short"),
            (
                head(1) + frame(DATA, END_STREAM, 1, message(b"abc")[:-1]),
                13,
                "the message of the call is cut short",
            ),
            (
                head(1) + frame(DATA, END_STREAM, 1, message(b"abc", 1)),
                13,
                "Compression bit set but no encoding configured",
            ),
        ],
    )
    async def test_with_a_status(self, sent: bytes, status: int, details: str) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(sent)
            answer = await client.answer()
            assert (answer.status, answer.details) == (status, details)
            assert answer.head[":status"] == "200" and not answer.body
            # the connection goes on
            await client.send(call(3, b"next"))
            assert (await client.answer(3)).body == message(b"next")
            assert server.at_work == 0
        assert len(handler.served) == 1

    async def test_an_unknown_compression_is_answered_with_the_known_ones(self) -> None:
        async with raw() as client:
            await client.send(call(1, b"", CALL, ("grpc-encoding", "snappy")))
            assert (await client.answer()).head["grpc-accept-encoding"] == "identity, gzip, deflate"

    @pytest.mark.parametrize(
        "kind", ["text/plain", "application/json", "application/grpc-web", "application/grpc+json"]
    )
    async def test_of_other_content(self, kind: str) -> None:
        async with raw() as client:
            await client.send(call(1, b"", CALL, ("content-type", kind)))
            assert (await client.answer()).head[":status"] == "415"

    @pytest.mark.parametrize(
        "kind", ["application/grpc+proto", "application/grpc;charset=utf-8", "Application/gRPC"]
    )
    async def test_not_of_these(self, kind: str) -> None:
        async with raw() as client:
            await client.send(call(1, b"", CALL, ("content-type", kind)))
            assert (await client.answer()).status == 0

    @pytest.mark.parametrize(
        "given",
        [
            fields(CALL, without=":method"),
            fields(CALL, without=":path"),
            fields("", (":path", "")),
            fields(CALL, without=":scheme"),
            fields(CALL, (":other", "x")),
            [*fields(CALL), (":path", "/late")],
            [(":path", "/a"), *fields(CALL)],
            fields(CALL, ("Upper", "x")),
            fields(CALL, ("transfer-encoding", "chunked")),
            fields(CALL, ("a b", "x")),
        ],
    )
    async def test_of_what_is_no_request(self, given: list[tuple[str, str]]) -> None:
        async with raw() as client:
            await client.send(frame(HEADERS, END_HEADERS, 1, block(given)), frame(DATA, 1, 1, message(b"")))
            reset = await client.kind(RST_STREAM)
            assert (reset.stream, reset.code) == (1, 1)
            await client.send(call(3))
            assert (await client.answer(3)).status == 0

    async def test_of_a_message_without_memory(self) -> None:
        def exhausted(size: int) -> memoryview:
            raise MemoryError

        load = ListenerLoad()
        load.allocate = exhausted
        async with raw(load=load) as client:
            await client.send(head(1), frame(DATA, 0, 1, b"\0\0\1\0\0" + bytes(20_000)), call(3))
            answers = await client.answers([1, 3])
            assert (answers[1].status, answers[1].details) == (8, "no memory for a message of 65536 bytes")
            assert answers[3].status == 0

    async def test_of_http_1(self) -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            told = await asyncio.wait_for(reader.read(), 30)
            writer.close()
        assert told.startswith(b"HTTP/1.1 426 Upgrade Required\r\n") and b"gRPC" in told

    async def test_a_long_request_ends_before_it_has_come(self) -> None:
        handler = GrpcEcho()
        async with raw(handler=handler, max_request_bytes=1000) as client:
            await client.send(head(1), frame(DATA, 0, 1, b"\0" + struct.pack(">L", 2**31)))
            answer = await client.answer()
            assert answer.status == 8 and "2147483648 bytes, more than the 1000" in answer.details
            # what is on its way is thrown away
            await client.send(*(frame(DATA, 0, 1, bytes(16_384)) for _ in range(200)))
            await client.send(call(3, b"x" * 1000))
            assert (await client.answer(3)).status == 0
        assert len(handler.served) == 1

    @pytest.mark.parametrize("size", [64_000, 66_000, 200_000])
    async def test_metadata_that_are_too_large_harm_no_other_call(self, size: int) -> None:
        handler = GrpcEcho()
        async with (
            serving(handler) as server,
            grpc.aio.insecure_channel(str(server.address)) as channel,
        ):
            other = asyncio.ensure_future(channel.unary_unary(WAIT)(b"other"))
            await handler.entered.wait()
            asked = channel.unary_unary(CALL)(b"x", metadata=(("long", "x" * size),))
            if size < 65_536:
                assert await asked == b"x"
            else:
                with pytest.raises(
                    grpc.aio.AioRpcError, match="more than the 65536 that are taken"
                ) as refused:
                    await asked
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            handler.release.set()
            assert await other == b"other"


class TestCompression:
    @pytest.mark.parametrize(("coding", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
    async def test_requests(self, coding: str, packed: Any) -> None:
        async with raw() as client:
            sent = message(packed(b"x" * 10_000), 1)
            await client.send(head(1, CALL, ("grpc-encoding", coding)), frame(DATA, END_STREAM, 1, sent))
            assert (await client.answer()).body == message(b"x" * 10_000)
            # the flag decides
            await client.send(call(3, b"plain", CALL, ("grpc-encoding", coding)))
            assert (await client.answer(3)).body == message(b"plain")

    async def test_what_is_not_in_that_coding(self) -> None:
        async with raw() as client:
            sent = message(b"garbage", 1)
            await client.send(head(1, CALL, ("grpc-encoding", "gzip")), frame(DATA, END_STREAM, 1, sent))
            answer = await client.answer()
            assert answer.status == 13 and answer.details.startswith("Decompression failed")

    async def test_what_grows_above_the_limit(self) -> None:
        async with raw(max_request_bytes=100_000) as client:
            sent = message(gzip.compress(bytes(200_000)), 1)
            await client.send(head(1, CALL, ("grpc-encoding", "gzip")), frame(DATA, END_STREAM, 1, sent))
            answer = await client.answer()
            assert answer.status == 8 and "when decompressed than the 100000" in answer.details


class TestDeadlines:
    @pytest.mark.parametrize(
        ("text", "secs"),
        [("2H", 7200), ("3M", 180), ("5S", 5), ("7000m", 7), ("9000000u", 9), ("99999999n", 0.099999999)],
    )
    async def test_units(self, text: str, secs: float) -> None:
        handler = GrpcEcho()
        async with raw(handler=handler) as client:
            began = time.monotonic()
            await client.send(call(1, b"", CALL, ("grpc-timeout", text)))
            await client.answer()
            ended = time.monotonic()
        deadline = handler.served[0].context.deadline
        assert deadline is not None and began + secs <= deadline <= ended + secs

    @pytest.mark.parametrize("text", ["0S", "50m"])
    async def test_what_takes_longer_is_cancelled(self, text: str) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"", WAIT, ("grpc-timeout", text)))
            answer = await client.answer()
            assert (answer.status, answer.details) == (4, "Deadline Exceeded")
            await until(lambda: not server.at_work)
        assert handler.cancelled.is_set() or text == "0S"

    async def test_of_a_request_that_does_not_come(self) -> None:
        async with raw() as client:
            await client.send(head(1, CALL, ("grpc-timeout", "50m")))
            assert (await client.answer()).status == 4

    async def test_of_a_message_that_is_arriving(self) -> None:
        """The rest of its frame comes later: the connection goes on, and so do its other calls."""
        async with raw() as client:
            data = frame(DATA, END_STREAM, 1, message(bytes(300_000)))
            await client.send(head(1, CALL, ("grpc-timeout", "50m")), call(3, b"", WAIT), data[:100_000])
            assert (await client.answer()).status == 4
            await client.send(data[100_000:], call(5, b"x"))
            assert (await client.answer(5)).body == message(b"x")

    async def test_far_away(self) -> None:
        async with raw() as client:
            await client.send(call(1, b"x", CALL, ("grpc-timeout", "99999999H")))
            assert (await client.answer()).body == message(b"x")

    async def test_of_an_answer_that_waits_for_room(self) -> None:
        handler = GrpcEcho(GrpcAnswer(bytes(100)))
        async with serving(handler) as server, RawH2.to(server.address, START + settings((4, 10))) as client:
            await client.send(call(1, b"", CALL, ("grpc-timeout", "100m")))
            answer = await client.answer()
            assert answer.head[":status"] == "200" and len(answer.body) == 10
            assert answer.trailers == {"grpc-status": "4", "grpc-message": "Deadline Exceeded"}
            assert server.at_work == 0

    async def test_of_work_that_ignores_it(self) -> None:
        stubborn = Stubborn()
        async with serving(stubborn) as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"", CALL, ("grpc-timeout", "100m")))
            await stubborn.entered.wait()
            await client.send(frame(RST_STREAM, 0, 1, bytes(4)))
            await stubborn.cancelled.wait()
            await asyncio.sleep(0.2)
            (peer,) = server.connections.open
            assert peer._connection.reset_at_work == 1
            stubborn.release.set()
            await until(lambda: not server.at_work)
            assert peer._connection.reset_at_work == 0

    async def test_in_any_order(self) -> None:
        async with raw() as client:
            texts = {1: "900m", 3: "100m", 5: "60S", 7: "500m"}
            await client.send(*(call(n, b"", WAIT, ("grpc-timeout", text)) for n, text in texts.items()))
            ended = [made.stream for made in await client.until(lambda made: made.stream == 1) if made.stream]
        assert ended == [3, 7, 1]

    async def test_of_a_stream(self) -> None:
        handler = GrpcEcho()
        async with raw(handler=handler) as client:
            await client.send(head(1, STREAM, ("grpc-timeout", "200m")), frame(DATA, 0, 1, message(b"a")))
            answer = await client.answer()
            assert answer.body == message(b"a") and answer.status == 4
            await asyncio.wait_for(handler.cancelled.wait(), 30)


class TestCancelling:
    async def test_a_reset(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"", WAIT))
            await handler.entered.wait()
            await client.send(frame(RST_STREAM, 0, 1, struct.pack(">L", 8)))
            await asyncio.wait_for(handler.cancelled.wait(), 30)
            await until(lambda: not server.at_work)

    async def test_a_client_that_is_gone(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server:
            async with RawH2.to(server.address) as client:
                await client.send(call(1, b"", WAIT), call(3, b"wait", STREAM))
                await handler.entered.wait()
            await asyncio.wait_for(handler.cancelled.wait(), 30)
            await until(lambda: not server.at_work and not server.connections.open)

    async def test_a_reset_in_the_packet_of_the_request(self) -> None:
        async with serving() as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"", WAIT), frame(RST_STREAM, 0, 1, bytes(4)), call(3, b"x"))
            assert (await client.answer(3)).status == 0
            assert server.at_work == 0

    async def test_work_that_ignores_it_counts_as_long_as_it_takes(self) -> None:
        stubborn = Stubborn()
        async with serving(stubborn) as server, RawH2.to(server.address) as client:
            await client.send(call(1))
            await stubborn.entered.wait()
            await client.send(frame(RST_STREAM, 0, 1, bytes(4)))
            await stubborn.cancelled.wait()
            (peer,) = server.connections.open
            assert server.at_work == 1 and peer._connection.reset_at_work == 1
            stubborn.release.set()
            await until(lambda: not server.at_work)
            assert peer._connection.reset_at_work == 0

    async def test_a_handler_that_breaks_its_promise_at_once(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(GrpcEcho):
            def stream(self, call: GrpcRequest, messages: Any) -> Any:
                raise RuntimeError("no generator, and no answer")

        async with raw(handler=Broken()) as client:
            await client.send(head(1, STREAM))
            assert (await client.answer()).status == 13
        assert "unexpected error" in caplog.text

    async def test_a_handler_that_cancels_itself(self) -> None:
        class Quitter(GrpcEcho):
            async def serve(self, request: GrpcRequest) -> GrpcAnswer:
                raise asyncio.CancelledError

        async with raw(handler=Quitter()) as client:
            await client.send(call(1))
            assert (await client.answer()).status == 1


@dataclass
class Stubborn(GrpcHandler):
    """Goes on after it was cancelled."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    def offers(self, method: str) -> Literal["unary"]:
        return "unary"

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await self.release.wait()
        return GrpcAnswer(b"late")


@dataclass
class Fountain(GrpcHandler):
    """A stream of ``count`` answers of ``size`` bytes for each message; keeps how many it has given."""

    size: int = 65_536
    count: int = 1 << 20
    given: int = 0
    taken: int = 0
    open: bool = True

    def offers(self, method: str) -> Literal["stream"]:
        return "stream"

    async def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        async for _ in messages:
            self.taken += 1
            for _ in range(self.count):
                if not self.open:
                    await asyncio.sleep(3600)
                self.given += 1
                yield GrpcAnswer(bytes(self.size))


class TestStreams:
    async def test_both_ways_at_once(self) -> None:
        async with raw() as client:
            await client.send(head(1, STREAM), head(3, STREAM))
            for turn in range(5):
                for stream in (1, 3):
                    await client.send(frame(DATA, 0, stream, message(b"%d" % turn)))
                    came = await client.until(lambda made: made.kind == DATA)
                    assert (came[-1].stream, came[-1].payload) == (stream, message(b"%d" % turn))
            await client.send(frame(DATA, END_STREAM, 1), frame(DATA, END_STREAM, 3))
            answers = await client.answers([1, 3])
        assert [answer.head for answer in answers.values()] == [{"grpc-status": "0"}] * 2

    async def test_of_nothing(self) -> None:
        async with raw() as client:
            await client.send(head(1, STREAM, flags=END_HEADERS | END_STREAM))
            answer = await client.answer()
            assert answer.head[":status"] == "200" and answer.trailers == {"grpc-status": "0"}

    async def test_messages_that_are_cut_anyhow(self) -> None:
        sent = b"".join(message(b"x" * size) for size in (0, 1, 5, 20_000, 3, 0, 9000))
        async with raw() as client:
            await client.send(head(1, STREAM))
            for start in range(0, len(sent), 997):
                await client.send(frame(DATA, 0, 1, sent[start : start + 997]))
            await client.send(frame(DATA, END_STREAM, 1))
            assert (await client.answer()).body == sent

    async def test_that_are_cut_short(self) -> None:
        async with raw() as client:
            await client.send(head(1, STREAM), frame(DATA, END_STREAM, 1, message(b"a") + b"\0\0"))
            answer = await client.answer()
            assert answer.body == message(b"a")
            assert (answer.status, answer.details) == (13, "the last message of the stream is cut short")

    async def test_a_message_above_the_limit_ends_it(self) -> None:
        async with raw(max_request_bytes=10) as client:
            await client.send(head(1, STREAM), frame(DATA, 0, 1, message(b"a") + message(b"x" * 11)))
            answer = await client.answer()
            assert answer.body == message(b"a") and answer.status == 8

    async def test_a_client_that_takes_nothing_is_sent_no_more_than_its_window(self) -> None:
        fountain = Fountain()
        async with raw(handler=fountain) as client:
            await client.send(head(1, STREAM), frame(DATA, 0, 1, message(b"")))
            await asyncio.sleep(0.2)
            given = fountain.given
            assert given < 20
            await client.send(window_update(0, 10 * MIB), window_update(1, 10 * MIB))
            await until(lambda: fountain.given > given + 10)

    async def test_nor_is_more_made_than_its_socket_takes(self) -> None:
        fountain = Fountain()
        async with raw(START + settings((4, 2**31 - 1)), handler=fountain) as client:
            await client.send(
                window_update(0, 2**31 - 1 - 65_535), head(1, STREAM), frame(DATA, 0, 1, message(b""))
            )
            assert await steady(lambda: fountain.given) * fountain.size < 32 * MIB

    async def test_what_is_not_taken_is_not_sent(self) -> None:
        fountain = Fountain(open=False)
        async with raw(handler=fountain) as client:
            await client.send(head(1, STREAM), frame(DATA, 0, 1, message(b"")))
            # there is room for 8 MiB
            await client.send(*(frame(DATA, 0, 1, message(bytes(MIB - 5))) for _ in range(8)))
            await client.send(frame(DATA, 0, 1, message(b"one too many")))
            assert (await client.kind(RST_STREAM)).code == 3

    async def test_of_a_client_that_reads_slowly(self) -> None:
        fountain = Fountain(size=1000, count=3000)
        async with raw(handler=fountain) as client:
            await client.send(head(1, STREAM), frame(DATA, END_STREAM, 1, message(b"")))
            got = 0
            ended = False
            while not ended:
                for made in await client.until(lambda made: True):
                    if made.kind == DATA:
                        got += len(made.payload)
                        await client.send(
                            window_update(0, len(made.payload)), window_update(1, len(made.payload))
                        )
                    ended = ended or bool(made.kind == HEADERS and made.flags & END_STREAM)
        assert got == 3000 * 1005


class TestBounds:
    async def test_unary_answers_that_are_not_taken(self) -> None:
        handler = GrpcEcho(GrpcAnswer(bytes(MIB)))
        async with raw(START + settings((4, 2**31 - 1)), handler=handler) as client:
            await client.send(window_update(0, 2**31 - 1 - 65_535))
            sending = asyncio.ensure_future(client.send(*(call(stream) for stream in range(1, 20_001, 2))))
            await until(lambda: handler.served)
            # as many as came in one read of the socket; then it is read no more
            assert await steady(lambda: len(handler.served)) < 5000
            sending.cancel()

    async def test_a_client_that_takes_nothing_is_cut_off(self) -> None:
        handler = GrpcEcho(GrpcAnswer(bytes(8 * MIB)))
        async with raw(START + settings((4, 2**31 - 1)), handler=handler, timeouts=stalling(0.3)) as client:
            await client.send(
                window_update(0, 2**31 - 1 - 65_535), *(call(stream) for stream in range(1, 41, 2))
            )
            await asyncio.sleep(1.0)
            with pytest.raises((EOFError, ConnectionError)):
                await client.answers(range(1, 41, 2))

    async def test_a_client_that_says_nothing_is_cut_off(self) -> None:
        async with raw(b"", timeouts=stalling(0.1)) as client:
            assert await client.ended()

    async def test_unread_pings_fill_nothing(self) -> None:
        async with raw() as client:
            await client.send(frame(PING, 0, 0, b"12345678") * 900)
            pings = [made for made in await client.until(lambda made: made.kind == PING) if made.kind == PING]
            assert pings[0].flags == ACK and pings[0].payload == b"12345678"

    async def test_a_flood_ends_the_connection(self) -> None:
        async with raw() as client:
            await client.send(frame(PING, 0, 0, b"12345678") * 2100)
            assert (await client.kind(GOAWAY)).code == 11
            assert await client.ended()

    async def test_rapid_reset(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, RawH2.to(server.address) as client:
            pairs = (call(n, b"", WAIT) + frame(RST_STREAM, 0, n, bytes(4)) for n in range(1, 6001, 2))
            await client.send(*pairs)
            assert (await client.kind(GOAWAY)).code == 11
            assert await client.ended()
            await until(lambda: not server.at_work)


class TestKeepalive:
    async def test_a_silent_client_with_a_call_is_pinged(self) -> None:
        async with raw(
            http2=Http2Options(keepalive_secs=0.1, keepalive_timeout_secs=0.2), timeouts=stalling(0.1)
        ) as client:
            await client.send(call(1, b"", WAIT))
            asked = await client.kind(PING)
            await client.send(frame(PING, ACK, 0, asked.payload))
            asked = await client.kind(PING)
            # and given up where it does not answer
            assert await client.ended()

    async def test_one_without_a_call_is_left_in_peace(self) -> None:
        async with raw(
            http2=Http2Options(keepalive_secs=0.05, keepalive_timeout_secs=0.05), timeouts=stalling(0.05)
        ) as client:
            await client.send(call(1))
            await client.answer()
            await asyncio.sleep(0.5)
            await client.send(call(3))
            assert (await client.answer(3)).status == 0


class TestStopping:
    async def test_a_client_may_end_what_it_has_begun(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"x", WAIT))
            await handler.entered.wait()
            stopping = asyncio.ensure_future(server.stop(10))
            told = await client.kind(GOAWAY)
            assert told.payload[:4] == b"\x7f\xff\xff\xff" and told.code == 0
            asked = await client.kind(PING)
            # a call that was on its way
            await client.send(call(3, b"y", WAIT), frame(PING, ACK, 0, asked.payload))
            assert (await client.kind(GOAWAY)).payload[:4] == b"\0\0\0\3"
            await client.send(call(5, b"z"))
            handler.release.set()
            answers = await client.answers([1, 3])
            assert [answer.body for answer in answers.values()] == [message(b"x"), message(b"y")]
            assert await client.ended()
            assert await stopping == 0
        assert [request.message for request in handler.served] == [b"x", b"y"]

    async def test_a_client_that_ignores_goaway_delays_no_stop(self) -> None:
        async with serving() as server, RawH2.to(server.address) as client:
            await client.send(call(1))
            await client.answer()
            began = time.monotonic()
            assert await server.stop(30) == 0
            assert time.monotonic() - began < 5
            assert await client.ended()

    async def test_answers_that_are_taken_slowly_are_taken_whole(self) -> None:
        content = bytes(MIB)
        async with serving(GrpcEcho(GrpcAnswer(content))) as server:
            narrow(server)
            async with RawH2.to(
                server.address, START + settings((4, 2 * MIB)) + window_update(0, 2 * MIB)
            ) as client:
                await client.send(call(1))
                await until(lambda: not server.at_work)
                stopping = asyncio.ensure_future(server.stop(30))
                await asyncio.sleep(2.5)  # longer than a client has that takes nothing more
                assert not stopping.done()
                await client.send(window_update(0, 1))  # which must not reset the connection
                assert (await client.answer()).body == message(content)
                assert await client.ended()
            assert await stopping == 0

    async def test_answers_that_are_not_taken_are_counted(self) -> None:
        async with serving(GrpcEcho(GrpcAnswer(bytes(MIB)))) as server:
            narrow(server)
            async with RawH2.to(
                server.address, START + settings((4, 2 * MIB)) + window_update(0, 2 * MIB)
            ) as client:
                await client.send(call(1))
                await until(lambda: not server.at_work)
                assert await server.stop(0.1) == 1

    async def test_nothing_is_answered_behind_the_end(self, caplog: pytest.LogCaptureFixture) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"", WAIT))
            await handler.entered.wait()
            stopping = asyncio.ensure_future(server.stop(10))
            asked = await client.kind(PING)
            await client.send(frame(PING, ACK, 0, asked.payload))
            await client.kind(GOAWAY)
            # what ends the last call ends the connection
            await client.send(frame(RST_STREAM, 0, 1, bytes(4)) + frame(PING, 0, 0, bytes(8)) + head(2))
            assert await client.ended()
            assert await stopping == 0
        assert not caplog.records

    async def test_a_call_that_was_on_its_way_on_a_new_connection_is_answered(self) -> None:
        async with serving() as server, RawH2.to(server.address, b"") as client:
            await until(lambda: server.connections.open)
            stopping = asyncio.ensure_future(server.stop(10))
            await asyncio.sleep(0)
            await client.send(START, call(1, b"late"))
            assert (await client.answer()).body == message(b"late")
            assert await client.ended()
            assert await stopping == 0

    async def test_what_is_cut_is_reported(self) -> None:
        handler = GrpcEcho()
        async with serving(handler) as server, RawH2.to(server.address) as client:
            await client.send(call(1, b"", WAIT), call(3, b"wait", STREAM), head(5))
            await handler.entered.wait()
            stopping = asyncio.ensure_future(server.stop(0.1))
            answers = await client.answers([1, 3, 5])
            assert [answer.status for answer in answers.values()] == [14] * 3
            assert await stopping == 3
            assert await client.ended()

    async def test_work_that_does_not_end_is_left(self) -> None:
        stubborn = Stubborn()
        async with serving(stubborn) as server, RawH2.to(server.address) as client:
            await client.send(call(1))
            await stubborn.entered.wait()
            assert await server.stop(0) == 1
            stubborn.release.set()
            await until(lambda: not server.at_work)

    async def test_no_more_calls_are_accepted(self) -> None:
        async with serving() as server:
            await server.stop(0)
            with pytest.raises(OSError):
                await asyncio.open_connection(server.address.host, server.address.port)


class TestLarge:
    @pytest.mark.parametrize("size", [65_536, 9 * MIB])
    async def test_messages_larger_than_any_window(self, size: int) -> None:
        content = bytes(range(256)) * (size // 256)
        options = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
        async with (
            serving() as server,
            grpc.aio.insecure_channel(str(server.address), options=options) as channel,
        ):
            several = [channel.unary_unary(CALL)(content) for _ in range(3)]
            for answer in await asyncio.gather(*several):
                assert answer == content
