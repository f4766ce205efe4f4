"""A body that drips, and an answer that is read in drips, end; slow ones do not."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlingua.protocols.transport.grpc.stalls import StallFinder
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.servers import SERVERS, ServerSettings
from interlingua.protocols.transport.timeouts import Timeouts
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.framed.test_server import FramedEcho
from tests.protocols.transport.grpc.test_server import STREAM, raw
from tests.protocols.transport.h2.peer import (
    DATA,
    RST_STREAM,
    START,
    call,
    frame,
    head,
    message,
    settings,
    window_update,
)
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho
from tests.protocols.transport.test_load import Engine
from tests.standins.brpc_frames import request_frame

BODY = bytes(500)
GRACE_SECS, DRIP_SECS, GIVE_UP_SECS = 0.7, 0.05, 20.0
TIMEOUTS = Timeouts(body_secs=GRACE_SECS, write_secs=GRACE_SECS, min_bytes_per_sec=1000)
"""Drips of a byte arrive in time for the body timeout, at 20 bytes per second."""

SLOW = "min_bytes_per_sec"
HTTP = b"POST /echo HTTP/1.1\r\nhost: a\r\n"


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


KINDS: list[tuple[str, Engine, bytes, bytes]] = [
    ("http", "native", HTTP + b"content-length: 500\r\n\r\n", BODY),
    ("http", "native", HTTP + b"content-length: 500000\r\n\r\n" + bytes(1000), BODY),  # received in place
    ("http", "native", HTTP + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 300),
    ("http", "library", HTTP + b"content-length: 500\r\n\r\n", BODY),
    ("brpc", "native", b"", request_frame("Predict", BODY)),
    ("brpc", "native", b"", request_frame("Predict", bytes(500_000))),
    ("tcp", "native", b"", framed(BODY)),
    ("tcp", "native", b"", framed(bytes(500_000))),
]


async def test_drips() -> None:
    drips = [drip(*each) for each in KINDS]
    await asyncio.gather(
        *drips, drip_over_grpc("/test.Echo/Call"), drip_over_grpc(STREAM), read_in_drips_over_grpc()
    )


async def drip(transport: str, engine: Engine, start: bytes, rest: bytes) -> None:
    handlers = {"http": HttpEcho(), "brpc": BrpcEcho(), "tcp": FramedEcho()}
    handlers |= {"brpc/http": handlers["http"], "brpc/grpc": GrpcEcho()}
    load = ListenerLoad()
    given = ServerSettings(1 << 20, engine=engine, load=load, timeouts=TIMEOUTS)
    server = SERVERS[transport](handlers, LOOPBACK, given)
    address = await server.start()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    answer = asyncio.create_task(received(reader))
    try:
        writer.write(start)
        async with asyncio.timeout(GIVE_UP_SECS):
            for octet in rest:
                writer.write(bytes((octet,)))
                if (await asyncio.wait((answer,), timeout=DRIP_SECS))[0]:
                    break
            text = await answer
        # over bRPC and tcp a message without its end has no answer
        assert SLOW.encode() in text if transport == "http" else not text, (transport, engine, text)
    finally:
        answer.cancel()
        writer.close()
        await server.stop(0)
    assert not load.body_bytes and not load.connections


async def received(reader: asyncio.StreamReader) -> bytes:
    """What arrives up to the end of the connection, or its reset."""
    text = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(1 << 16):
            text += piece
            if SLOW.encode() in text:
                break
    return text


async def drip_over_grpc(path: str) -> None:
    async with raw(timeouts=TIMEOUTS) as client:
        await client.send(head(1, path))
        answer = asyncio.create_task(client.answer())
        for octet in message(BODY):
            await client.send(frame(DATA, 0, 1, bytes((octet,))))
            if (await asyncio.wait((answer,), timeout=DRIP_SECS))[0]:
                break
        assert (await asyncio.wait_for(answer, GIVE_UP_SECS)).status == 4
        assert SLOW in answer.result().details


async def read_in_drips_over_grpc() -> None:
    async with raw(START + settings((4, 1)), timeouts=TIMEOUTS) as client:
        await client.send(call(1, BODY))
        reset = asyncio.create_task(client.kind(RST_STREAM))
        for _ in BODY:
            await client.send(window_update(1, 1))
            if (await asyncio.wait((reset,), timeout=DRIP_SECS))[0]:
                break
        assert (await asyncio.wait_for(reset, GIVE_UP_SECS)).code == 8


class Call:
    """What a ``StallFinder`` looks at: a call whose client sends, or reads, at ``rate`` bytes per second."""

    def __init__(self, rate: float, reads: bool) -> None:
        self._rate = rate
        self.queued, self.awaits_body = int(reads), not reads
        self.send_window = self.sent = self.received = 0
        self.arrived = 0

    def at(self, secs: float) -> None:
        self.sent = self.arrived = self.received = self.send_window = int(self._rate * secs)


class Sender:
    window = 0


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    ("rate", "ends"), [(1 / 59, True), (100, True), (230, True), (250, False), (1e6, False)]
)
def test_the_rate_counts_after_the_timeout(rate: float, ends: bool, reads: bool) -> None:
    finder: Any = StallFinder(Timeouts())
    one = Call(rate, reads)
    first = next((secs for secs in looks(finder, one)), None)
    assert (first is not None) is ends
    assert first is None or first > 60


def test_a_stream_of_slow_messages_is_not_one_slow_message() -> None:
    """Each message arrives in a second and is seen partial by chance, at 100 bytes per second of the stream."""
    finder: Any = StallFinder(Timeouts())
    one = Call(0, reads=False)
    for secs in range(0, 7200, 8):
        one.received += 800
        one.arrived = (900, 500, 100)[secs // 8 % 3]
        assert not dict(finder.stalled({one}, Sender(), secs))


def looks(finder: Any, one: Call) -> Iterator[int]:
    """The times at which ``one`` is found to be stalled."""
    for secs in range(0, 7200, 8):
        one.at(secs)
        if dict(finder.stalled({one}, Sender(), secs)):
            yield secs


def test_timeouts_without_a_rate() -> None:
    timeouts = Timeouts(min_bytes_per_sec=0)
    slow: list[Callable[[float, int], bool]] = [timeouts.slow_body, timeouts.slow_write]
    assert not any(each(1e9, 0) for each in slow)
