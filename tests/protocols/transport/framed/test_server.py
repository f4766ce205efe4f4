"""The framed listener before a raw client: order, limits, half a message, clients that go."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.framed import server as framed_server
from interlingua.protocols.transport.framed.server import FramedServer
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import FramedAnswer, FramedHandler, FramedRequest
from interlingua.schemas import InferenceError
from tests.protocols.transport.peers import LOOPBACK, stalling
from tests.standins.framed import FramedClient, framed
from tests.waiting import until


@dataclass
class FramedEcho(FramedHandler):
    """Answers with the message itself; ``sleep N`` after N milliseconds, ``wait`` after ``release``, ``large N`` with
    N bytes. A refusal is the name of the code and the words."""

    served: list[bytes] = field(default_factory=list)
    requests: list[FramedRequest] = field(default_factory=list)
    refused: list[InferenceError] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    async def serve(self, request: FramedRequest) -> FramedAnswer:
        message = bytes(request.message)
        self.served.append(message)
        self.requests.append(request)
        request.context.cancel.on_cancel(self._cancelled)
        word, _, number = message.partition(b" ")
        if word == b"sleep":
            await asyncio.sleep(int(number) / 1000)
        elif word == b"wait":
            await self.release.wait()
        elif word == b"raise":
            raise RuntimeError("a handler that breaks its promise")
        elif word == b"large":
            size = int(number)
            return FramedAnswer([struct.pack("<I", size), bytes(size)])
        return FramedAnswer([framed(message)])

    def refuse(self, request: FramedRequest, error: InferenceError) -> FramedAnswer:
        self.refused.append(error)
        return FramedAnswer([framed(f"{error.code.name}: {error.message}".encode())])

    def _cancelled(self) -> None:
        self.cancelled += 1


@asynccontextmanager
async def serving(
    address: Address = LOOPBACK, **options: Any
) -> AsyncIterator[tuple[FramedServer, FramedEcho]]:
    echo = FramedEcho()
    server = FramedServer(echo, address, **options)
    await server.start()
    try:
        yield server, echo
    finally:
        await server.stop(0)


async def test_messages_and_where_they_came_from(tmp_path: Path) -> None:
    for address, peer in ((LOOPBACK, "127.0.0.1"), (parse_address(f"unix:{tmp_path}/a.sock"), "")):
        async with serving(address) as (server, echo), FramedClient.to(server.address) as client:
            for message in (b"one", b"", b"x" * 100_000, b"\x00\xff" * 1_000_000):
                assert await client.ask(message) == message
            assert {request.context.peer for request in echo.requests} == {peer}
    assert not (tmp_path / "a.sock").exists()


async def test_answers_come_in_the_order_of_the_messages() -> None:
    async with serving() as (server, _), FramedClient.to(server.address) as client:
        messages = [b"sleep %d" % (delay * 7 % 40) for delay in range(40)]
        began = asyncio.get_running_loop().time()
        await client.send(*messages)
        assert [await client.receive() for _ in messages] == messages
        # together, not one after the other: that would take 0.8 seconds
        assert asyncio.get_running_loop().time() - began < 0.5


async def test_a_message_byte_by_byte() -> None:
    async with serving() as (server, _), FramedClient.to(server.address) as client:
        for octet in framed(b"slow") + framed(b"again"):
            client.writer.write(bytes([octet]))
            await asyncio.sleep(0.002)
        assert [await client.receive(), await client.receive()] == [b"slow", b"again"]


async def test_a_message_too_large_is_refused_before_it_is_there() -> None:
    async with serving(max_request_bytes=1000) as (server, echo), FramedClient.to(server.address) as client:
        await client.send(b"sleep 50", b"x" * 1000)
        client.writer.write(struct.pack("<I", 1001) + b"y" * 10)
        assert await client.receive() == b"sleep 50"
        assert await client.receive() == b"x" * 1000
        refusal = await client.receive()
        assert refusal is not None
        assert refusal.startswith(b"TOO_LARGE: the message has 1001 bytes, more than the 1000 that")
        assert await client.receive() is None
        assert echo.served == [b"sleep 50", b"x" * 1000]


async def test_a_client_that_sends_on_gets_its_refusal() -> None:
    async with serving(max_request_bytes=1000, linger_secs=1.0) as (server, _):
        with socket.create_connection((server.address.host, server.address.port)) as client:
            client.settimeout(5)

            def talk() -> bytes:
                client.sendall(struct.pack("<I", 50_000_000))
                client.sendall(bytes(50_000_000))
                client.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: client.recv(65536), b""))

            told = await asyncio.to_thread(talk)
        assert b"TOO_LARGE" in told
        await until(lambda: not server.connections.open)


async def test_a_call_that_does_not_stop_is_cut() -> None:
    limits: dict[str, Any] = {"max_request_bytes": 10, "linger_secs": 0.2}
    async with serving(**limits) as (server, _), FramedClient.to(server.address) as client:
        client.writer.write(struct.pack("<I", 11))
        assert (await client.receive() or b"").startswith(b"TOO_LARGE")
        assert await client.receive() is None
        await until(lambda: not server.connections.open)


@pytest.mark.parametrize("start", [b"POST / HTTP/1.1\r\n", b"GET /", b"PRI * HTTP/2.0\r\n\r\nSM"])
async def test_a_client_that_speaks_http(start: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (server, echo), FramedClient.to(server.address) as client:
        with caplog.at_level(logging.WARNING):
            client.writer.write(start[:2])
            await asyncio.sleep(0.02)
            client.writer.write(start[2:])
            assert await client.reader.read() == b""
        (record,) = caplog.records
        assert record.message == "HTTP client on tcp listener"
        assert "transport http" in record.facts["reason"]  # type: ignore[attr-defined]
        assert not echo.served


async def test_half_a_message_at_the_end() -> None:
    async with serving() as (server, _), FramedClient.to(server.address) as client:
        client.writer.write(framed(b"sleep 30") + framed(b"whole")[:-2])
        client.writer.write_eof()
        assert await client.receive() == b"sleep 30"
        assert await client.receive() == (
            b"MALFORMED: the connection ended 2 bytes before the end of a message"
        )
        assert await client.receive() is None


@pytest.mark.parametrize("place", ["tcp", "unix"])
async def test_a_client_that_only_listens_on_gets_its_answers(place: str, tmp_path: Path) -> None:
    address = LOOPBACK if place == "tcp" else parse_address(f"unix:{tmp_path}/a.sock")
    async with serving(address) as (server, _), FramedClient.to(server.address) as client:
        await client.send(b"sleep 80", b"sleep 20", b"large 3000000")
        client.writer.write_eof()
        assert await client.receive() == b"sleep 80"
        assert await client.receive() == b"sleep 20"
        assert await client.receive() == bytes(3_000_000)
        assert await client.receive() is None


async def test_a_half_closed_client_does_not_wait_for_ever() -> None:
    async with serving(half_closed_secs=0.2) as (server, echo), FramedClient.to(server.address) as client:
        await client.send(b"wait")
        client.writer.write_eof()
        assert await asyncio.wait_for(client.reader.read(), 20) == b""
        await until(lambda: echo.cancelled == 1)


@pytest.mark.parametrize("place", ["tcp", "unix"])
async def test_a_client_that_goes_takes_its_messages_with_it(place: str, tmp_path: Path) -> None:
    address = LOOPBACK if place == "tcp" else parse_address(f"unix:{tmp_path}/a.sock")
    async with serving(address) as (server, echo), FramedClient.to(server.address) as client:
        await client.send(b"wait", b"wait")
        await until(lambda: len(echo.served) == 2)
        if place == "tcp":
            end: Any = client.writer.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()
        await until(lambda: echo.cancelled == 2 and not server.connections.in_flight)
        assert not server.connections.open


async def test_no_more_at_work_than_is_bounded() -> None:
    async with serving() as (server, echo), FramedClient.to(server.address) as client:
        await client.send(*[b"wait"] * 200)
        await until(lambda: len(echo.served) == framed_server.MAX_IN_FLIGHT)
        await asyncio.sleep(0.05)
        assert len(echo.served) == framed_server.MAX_IN_FLIGHT
        echo.release.set()
        assert [await client.receive() for _ in range(200)] == [b"wait"] * 200


async def test_nothing_begins_while_enough_bytes_are_at_work() -> None:
    message = b"wait" + bytes(996)
    async with serving(max_request_bytes=2500) as (server, echo), FramedClient.to(server.address) as client:
        await client.send(b"wait " + message, b"wait " + message, b"wait " + message, b"wait " + message)
        await until(lambda: len(echo.served) == 3)
        await asyncio.sleep(0.05)
        assert len(echo.served) == 3
        echo.release.set()
        assert all([await client.receive() for _ in range(4)])


async def test_a_client_that_takes_nothing_gives_nothing() -> None:
    async with serving(timeouts=stalling(0.5)) as (server, echo), FramedClient.to(server.address) as client:
        client.writer.write(framed(b"large 4000000") * 100)
        await until(
            lambda: server.connections.open and not next(iter(server.connections.open))._backlog.writable
        )
        await asyncio.sleep(0.1)
        assert len(echo.served) <= framed_server.MAX_IN_FLIGHT
        await until(lambda: not server.connections.open)


async def test_half_a_message_that_does_not_go_on() -> None:
    async with serving(timeouts=stalling(0.15)) as (server, _), FramedClient.to(server.address) as client:
        assert await client.ask(b"first") == b"first"
        client.writer.write(framed(b"second")[:7])
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


async def test_a_connection_without_messages() -> None:
    async with (
        serving(timeouts=Timeouts(idle_secs=0.2)) as (server, _),
        FramedClient.to(server.address) as client,
    ):
        await client.send(b"sleep 500")
        assert await client.receive() == b"sleep 500"
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


async def test_an_answer_too_large() -> None:
    async with serving(max_response_bytes=100) as (server, _), FramedClient.to(server.address) as client:
        assert await client.ask(b"large 100") == bytes(100)
        assert await client.ask(b"large 101") == (
            b"TOO_LARGE: the answer has 101 bytes, more than the 100 that max_response_bytes of this listener allows"
        )


async def test_a_handler_that_breaks_its_promise(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (server, _), FramedClient.to(server.address) as client:
        assert (await client.ask(b"raise") or b"").startswith(b"INTERNAL: internal error")
        assert await client.ask(b"next") == b"next"
    assert "unexpected error" in caplog.text


async def test_stopping_lets_messages_end_and_takes_no_more() -> None:
    async with serving() as (server, echo):
        async with FramedClient.to(server.address) as busy, FramedClient.to(server.address) as idle:
            await busy.send(b"wait")
            await until(lambda: len(echo.served) == 1 and len(server.connections.open) == 2)
            stopping = asyncio.ensure_future(server.stop(3))
            assert await idle.receive() is None
            await busy.send(b"late")
            await asyncio.sleep(0.05)
            echo.release.set()
            assert await busy.receive() == b"wait"
            assert await busy.receive() == b"UNAVAILABLE: the server is stopping"
            assert await busy.receive() is None
            assert await stopping == 0
        with pytest.raises(OSError, match="."):
            async with FramedClient.to(server.address):
                pass


async def test_half_a_message_while_stopping() -> None:
    async with serving() as (server, _), FramedClient.to(server.address) as client:
        client.writer.write(framed(b"message")[:6])
        await until(lambda: server.connections.open and next(iter(server.connections.open))._splitter.missing)
        stopping = asyncio.ensure_future(server.stop(3))
        assert await client.receive() == b"UNAVAILABLE: the server is stopping"
        client.writer.close()
        assert await stopping == 0


async def test_what_takes_too_long_is_cut() -> None:
    async with serving() as (server, echo), FramedClient.to(server.address) as client:
        await client.send(b"wait", b"wait")
        await until(lambda: len(echo.served) == 2)
        assert await server.stop(0.05) == 2
        assert echo.cancelled == 2
        assert not server.connections.in_flight


LIMIT = 60
STREAMS = st.lists(
    st.binary(max_size=LIMIT).map(framed)
    | st.binary(max_size=9)
    | st.integers(LIMIT + 1, 2**32 - 1).map(lambda size: struct.pack("<I", size)),
    max_size=6,
).map(b"".join)


def expected(stream: bytes) -> list[bytes]:
    """What an echo answers to ``stream``, read one message after the other."""
    answers: list[bytes] = []
    if stream[:4] in framed_server._HTTP_STARTS:
        return answers
    while stream:
        size = int.from_bytes(stream[:4], "little") if len(stream) >= 4 else -1
        if size > LIMIT:
            return [*answers, b"TOO_LARGE"]
        if size < 0 or len(stream) < 4 + size:
            return [*answers, b"MALFORMED"]
        answers.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return answers


@settings(max_examples=150, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 400), max_size=5))
def test_any_stream_in_any_pieces(stream: bytes, cuts: list[int]) -> None:
    async def session() -> list[bytes]:
        async with serving(max_request_bytes=LIMIT) as (server, _), FramedClient.to(server.address) as client:
            for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
                client.writer.write(stream[start:end])
                await asyncio.sleep(0)
            client.writer.write_eof()
            return [answer async for answer in every(client)]

    async def every(client: FramedClient) -> AsyncIterator[bytes]:
        while (answer := await client.receive()) is not None:
            yield answer.partition(b": ")[0] if answer[:9] in (b"TOO_LARGE", b"MALFORMED") else answer

    assert asyncio.run(session()) == expected(stream)
