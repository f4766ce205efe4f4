"""Clients that stop in the middle are not waited for; those that only think are."""

from __future__ import annotations

import asyncio
from typing import Any

from interlingua.protocols.transport.grpc.stalls import StallFinder
from interlingua.protocols.transport.h2.options import Http2Options
from interlingua.protocols.transport.timeouts import Timeouts
from tests.protocols.transport.grpc.test_server import CALL, STREAM, WAIT, raw, serving
from tests.protocols.transport.h2.peer import (
    CONTINUATION,
    DATA,
    END_STREAM,
    GOAWAY,
    RST_STREAM,
    SETTINGS,
    START,
    RawH2,
    call,
    frame,
    head,
    message,
    settings,
    window_update,
)
from tests.protocols.transport.peers import GrpcEcho, stalling

SECS = 0.15
STALLED = "no byte of the request body arrived for 0.15 seconds"


class TestBody:
    async def test_half_a_message_is_refused(self) -> None:
        async with raw(timeouts=stalling(SECS)) as client:
            await client.send(head(1), frame(DATA, 0, 1, message(b"ab")[:-1]))
            answer = await client.answer()
            assert (answer.status, answer.details) == (4, STALLED)
            await client.send(call(3, b"next"))
            assert (await client.answer(3)).body == message(b"next")

    async def test_headers_alone_are_half_a_unary_call(self) -> None:
        async with raw(timeouts=stalling(SECS)) as client:
            await client.send(head(1, CALL))
            assert (await client.answer()).status == 4

    async def test_half_a_message_of_a_stream_ends_it(self) -> None:
        async with raw(timeouts=stalling(SECS)) as client:
            await client.send(head(1, STREAM), frame(DATA, 0, 1, message(b"whole") + message(b"half")[:-1]))
            answer = await client.answer()
            assert (answer.body, answer.status) == (message(b"whole"), 4)

    async def test_a_stream_may_be_quiet_between_messages(self) -> None:
        async with raw(timeouts=stalling(SECS, SECS)) as client:
            await client.send(head(1, STREAM), frame(DATA, 0, 1, message(b"one")))
            await asyncio.sleep(4 * SECS)
            await client.send(frame(DATA, END_STREAM, 1, message(b"two")))
            answer = await client.answer()
            assert (answer.body, answer.status) == (message(b"one") + message(b"two"), 0)

    async def test_one_that_drips_is_waited_for(self) -> None:
        async with raw(timeouts=stalling(6 * SECS)) as client:
            await client.send(head(1))
            for octet in message(b"in drips"):
                await asyncio.sleep(SECS / 2)
                await client.send(frame(DATA, 0, 1, bytes((octet,))))
            assert (await client.answer()).body == message(b"in drips")

    async def test_a_long_inference_is_neither_idle_nor_stalled(self) -> None:
        handler = GrpcEcho()
        async with raw(handler=handler, timeouts=stalling(SECS, SECS)) as client:
            await client.send(call(1, b"x", WAIT))
            await asyncio.sleep(4 * SECS)
            handler.release.set()
            assert (await client.answer()).body == message(b"x")


class TestWrite:
    async def test_an_answer_without_a_window_is_given_up(self) -> None:
        async with raw(START + settings((4, 0)), timeouts=stalling(SECS)) as client:
            await client.send(call(1, b"never read"))
            assert (await client.kind(RST_STREAM)).code == 8

    async def test_one_that_is_read_slowly_is_not(self) -> None:
        async with raw(START + settings((4, 1)), timeouts=stalling(6 * SECS)) as client:
            await client.send(call(1, b"slow"))
            for _ in range(8):
                await asyncio.sleep(SECS)
                await client.send(window_update(1, 1))
            assert (await client.answer()).body == message(b"slow")


class TestConnections:
    async def test_one_without_calls_is_sent_away(self) -> None:
        async with raw(timeouts=Timeouts(idle_secs=SECS)) as client:
            await client.send(call(1))
            assert (await client.answer()).status == 0
            assert (await client.kind(GOAWAY)).code == 0
            await client.send(call(3, b"sent meanwhile"))
            assert (await client.answer(3)).body == message(b"sent meanwhile")
            assert await client.ended()

    async def test_headers_that_do_not_end_are_cut_off(self) -> None:
        async with raw(timeouts=stalling(SECS)) as client:
            await client.send(call(1, b"x", WAIT), head(3, flags=0))
            for _ in range(3):
                await asyncio.sleep(SECS / 3)
                await client.send(frame(CONTINUATION, 0, 3, b""))
            assert await client.ended()

    async def test_the_options_are_sent_to_the_client(self) -> None:
        options = Http2Options(
            max_streams=7, max_header_list=5000, stream_window=70_000, connection_window=80_000
        )
        async with raw(http2=options) as client:
            stated = (await client.kind(SETTINGS)).payload
            pairs = {
                int.from_bytes(stated[at : at + 2], "big"): int.from_bytes(stated[at + 2 : at + 6], "big")
                for at in range(0, len(stated), 6)
            }
            assert (pairs[3], pairs[4], pairs[6]) == (7, 70_000, 5000)
            await client.send(head(1, CALL, ("x-long", "y" * 6000)))
            refused = await client.answer()
            assert (refused.status, refused.details[:16]) == (8, "the metadata has")

    async def test_no_more_streams_than_configured_are_accepted(self) -> None:
        async with (
            serving(http2=Http2Options(max_streams=2)) as server,
            RawH2.to(server.address) as client,
        ):
            await client.send(*(call(stream, b"x", WAIT) for stream in (1, 3, 5)))
            refused = await client.kind(RST_STREAM)
            assert (refused.stream, refused.code) == (5, 7)


class Call:
    """What a ``StallFinder`` looks at."""

    def __init__(self, queued: int = 0, awaits_body: bool = False) -> None:
        self.queued, self.awaits_body = queued, awaits_body
        self.send_window = self.received = self.arrived = self.sent = 0


class Sender:
    window = 0


def test_progress_is_looked_for_over_time() -> None:
    finder: Any = StallFinder(Timeouts(body_secs=10, write_secs=20, min_bytes_per_sec=0))
    writes, reads, rests = Call(queued=1), Call(awaits_body=True), Call()
    calls, sender = {writes, reads, rests}, Sender()

    def found(now: float) -> dict[Call, str]:
        return dict(finder.stalled(calls, sender, now))

    assert found(100) == found(109) == {}
    assert found(110) == {reads: "body"}
    reads.received = 1
    assert found(111) == {}
    writes.send_window = -1
    assert found(119) == found(120.5) == {}
    assert found(121) == {reads: "body"}
    assert found(139) == {reads: "body", writes: "write"}
    # a byte more was accepted, and sent at once
    writes.sent = 1
    assert found(140) == {reads: "body"}
    calls.clear()
    assert found(200) == {}
    assert not finder._seen
