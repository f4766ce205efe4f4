"""A client that begins many large messages cannot have all of them held; an honest one sends them all."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.h2.options import Http2Options
from interlingua.protocols.wire import GrpcRequest
from tests.protocols.transport.grpc.test_server import CALL, STREAM, raw, serving
from tests.protocols.transport.h2.peer import (
    DATA,
    END_STREAM,
    RST_STREAM,
    START,
    WINDOW_UPDATE,
    Frame,
    RawH2,
    frame,
    head,
    message,
    settings,
    window_update,
)

WINDOW, BUDGET, SIZE = 70_000, 1_000_000, 400_000
NARROW = Http2Options(stream_window=WINDOW, connection_window=BUDGET)
STREAMS = range(1, 49, 2)


class Sender:
    """Sends messages of ``SIZE`` bytes on many streams, as the windows permit, up to ``most`` bytes of each."""

    def __init__(self, client: RawH2, most: int) -> None:
        self.client = client
        self.most = most
        self.sent = dict.fromkeys(STREAMS, 0)
        self.windows = {0: 65_535, **dict.fromkeys(STREAMS, WINDOW)}
        self.wire = struct.pack(">BL", 0, SIZE) + bytes(SIZE)

    async def send(self, stream: int) -> None:
        """As much as is permitted, in small frames: every stream has its turn."""
        at = self.sent[stream]
        size = min(16_384, self.most - at, self.windows[0], self.windows[stream])
        if size <= 0:
            return
        self.sent[stream] += size
        self.windows[0] -= size
        self.windows[stream] -= size
        ends = END_STREAM if at + size == len(self.wire) else 0
        await self.client.send(frame(DATA, ends, stream, self.wire[at : at + size]))

    async def go_on(self, quiet_secs: float) -> None:
        """Send until nothing more is permitted."""
        with suppress(TimeoutError):
            while True:
                before = sum(self.sent.values())
                for stream in STREAMS:
                    await self.send(stream)
                if sum(self.sent.values()) == before:
                    self.take((await self.client.until(self.is_window, quiet_secs))[-1])

    def is_window(self, made: Frame) -> bool:
        assert made.kind != RST_STREAM
        return made.kind == WINDOW_UPDATE

    def take(self, made: Frame) -> None:
        self.windows[made.stream] += int.from_bytes(made.payload, "big")


async def test_half_messages_share_the_window_of_the_connection() -> None:
    async with raw(START, http2=NARROW) as client:
        await client.send(*(head(stream, CALL) for stream in STREAMS))
        sender = Sender(client, SIZE)  # the last bytes are never sent
        await sender.go_on(0.3)
        held = sum(sender.sent.values())
        assert BUDGET / 2 < held < BUDGET + 2 * WINDOW * len(STREAMS)
        assert held < SIZE * len(STREAMS) / 2


async def test_a_stream_that_ends_gives_its_part_to_the_next() -> None:
    async with raw(START, http2=NARROW) as client:
        await client.send(*(head(stream, CALL) for stream in STREAMS))
        sender = Sender(client, SIZE)
        await sender.go_on(0.2)
        before = sum(sender.sent.values())
        largest = max(sender.sent, key=sender.sent.__getitem__)
        await client.send(frame(RST_STREAM, 0, largest, bytes((0, 0, 0, 8))))
        sender.windows[largest] = 0
        await sender.go_on(0.2)
        assert sum(sender.sent.values()) > before + SIZE / 4


async def test_honest_calls_are_all_answered() -> None:
    async with serving(http2=NARROW) as server:
        client = GrpcChannelClient(Url(server.address))
        try:
            bodies = [bytes([number]) * (SIZE + number) for number in range(24)]
            answers = await asyncio.gather(*(client.send(GrpcRequest(CALL, body)) for body in bodies))
            assert [answer.message for answer in answers] == bodies
        finally:
            await client.close()


async def test_a_message_above_the_whole_budget_is_received_alone() -> None:
    async with serving(http2=NARROW) as server:
        client = GrpcChannelClient(Url(server.address))
        try:
            bodies = [bytes(3 * BUDGET), bytes(20 * BUDGET), bytes(SIZE)]
            answers = await asyncio.gather(*(client.send(GrpcRequest(CALL, body)) for body in bodies))
            assert [len(answer.message) for answer in answers] == [len(body) for body in bodies]
        finally:
            await client.close()


async def test_large_messages_of_a_stream_one_after_the_other() -> None:
    async def messages() -> object:
        for number in range(6):
            yield bytes([number]) * SIZE

    async with serving(http2=NARROW) as server:
        client = GrpcChannelClient(Url(server.address))
        try:
            call = GrpcRequest(STREAM, b"")
            answers = [answer.message async for answer in client.stream(call, messages())]  # type: ignore[arg-type]
            assert answers == [bytes([number]) * SIZE for number in range(6)]
        finally:
            await client.close()


async def test_padding_and_small_messages_need_no_loan() -> None:
    open_windows = settings((4, 1 << 20)) + window_update(0, 1 << 20)
    async with raw(START + open_windows, http2=NARROW) as client:
        await client.send(head(1, STREAM))
        for _ in range(40):
            await client.send(frame(DATA, 8, 1, b"\xff" + message(bytes(5000)) + bytes(255)))
            await client.until(lambda made: made.kind == DATA)
        await client.send(frame(DATA, END_STREAM, 1))
        assert (await client.answer()).status == 0
