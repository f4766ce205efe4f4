"""What a peer may send without work is bounded over time, and in each turn; honest peers never notice."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from interlingua.protocols.transport.allowance import Allowance
from interlingua.protocols.transport.grpc.headers import ANSWER_HEADERS, OK
from interlingua.protocols.transport.h2.flood import SMALL_BYTES
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.turns import TURN_FRAMES
from tests.protocols.transport.h2.peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    frame,
    head,
    settings,
    window_update,
)
from tests.protocols.transport.h2.test_connection import Server, open_


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def timed(server: Server) -> Clock:
    """The clock of a connection's allowance, from now on."""
    clock = Clock()
    server.connection.guard._clock, server.connection.guard._since = clock, clock.now
    return clock


class TestAllowance:
    def test_a_burst_and_a_rate(self) -> None:
        clock = Clock()
        allowance = Allowance(10, 2, clock)
        assert [allowance.spend() for _ in range(11)] == [True] * 10 + [False]
        clock.now += 3
        assert [allowance.spend() for _ in range(6)] == [True] * 5 + [False]

    def test_no_more_than_a_burst_is_saved(self) -> None:
        clock = Clock()
        allowance = Allowance(10, 2, clock)
        clock.now += 1000
        assert [allowance.spend() for _ in range(30)].count(True) <= 2 * 10 + 1

    def test_the_clock_is_read_only_at_the_end(self) -> None:
        reads = []
        allowance = Allowance(3, 1, lambda: reads.append(1) or 0.0)  # type: ignore[func-returns-value]
        allowance.spend(3)
        assert len(reads) == 1
        allowance.spend()
        assert len(reads) == 2


def reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, bytes(4))


FLOODS: dict[str, Callable[[int], bytes]] = {
    "window updates": lambda _: window_update(0, 1),
    "window updates of a stream": lambda _: window_update(1, 1),
    "pings": lambda _: frame(PING, 0, 0, bytes(8)),
    "ping acknowledgements": lambda _: frame(PING, ACK, 0, bytes(8)),
    "settings": lambda _: settings(),
    "settings acknowledgements": lambda _: frame(SETTINGS, ACK, 0),
    "priorities": lambda _: frame(PRIORITY, 0, 1, bytes(5)),
    "unknown frames": lambda _: frame(99, 0, 0),
    "empty data": lambda _: frame(DATA, 0, 1),
    "data of one byte": lambda _: frame(DATA, 0, 1, b"x"),
    "data of an ended stream": lambda _: frame(DATA, 0, 3, b"x"),
    "resets of an ended stream": lambda _: reset(3),
    "resets of streams that never open": lambda number: reset(5 + 2 * number),
    "resets": lambda number: head(5 + 2 * number) + reset(5 + 2 * number),
    "refused heads": lambda number: head(5 + 2 * number, "/refused"),
}


def flooded() -> Server:
    """A connection with a stream that is open, and one that has ended; some heads are refused."""
    server = open_(head(1), head(3), reset(3))
    accept = server.accept
    server.connection._accept = (  # type: ignore[method-assign,assignment]
        lambda *given: None if dict(given[2])[b":path"] == b"/refused" else accept(*given)
    )
    return server


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection(name: str) -> None:
    server = flooded()
    timed(server)
    for number in range(12_000):
        if frames := server.take(FLOODS[name](number)):
            last = frames[-1]
            if last.kind == GOAWAY:
                break
    assert (last.kind, last.code) == (GOAWAY, Code.ENHANCE_YOUR_CALM)
    assert server.connection.closed


@pytest.mark.parametrize("name", FLOODS)
def test_the_same_at_50_per_second_does_not(name: str) -> None:
    server = flooded()
    clock = timed(server)
    server.connection.guard.tokens = 100
    for number in range(3000):
        clock.now += 0.02
        server.take(FLOODS[name](number))
    assert not server.connection.closed


def test_answers_between_do_not_excuse_a_flood() -> None:
    server = open_(echoes=True)
    timed(server)
    for stream in range(1, 4001, 2):
        server.take(head(stream), frame(DATA, END_STREAM, stream, b"x"), frame(PING, ACK, 0, bytes(8)) * 20)
        if server.connection.closed:
            break
    assert server.connection.closed
    assert stream > 100


class TestHonestPeers:
    def test_that_open_a_tiny_window_for_each_piece_of_an_answer(self) -> None:
        server = open_(settings((4, 1)), head(1), frame(DATA, END_STREAM, 1))
        timed(server)
        content = bytes(20_000)
        server.connection.sender.send_whole(server.streams[1], ANSWER_HEADERS, (content,), len(content), OK)
        for _ in range(len(content)):
            server.take(window_update(1, 1), window_update(0, 1))
        assert not server.connection.closed
        assert server.streams[1].half_closed_local

    def test_that_send_large_messages_in_frames_of_16_kib(self) -> None:
        server = open_(head(1))
        timed(server)
        server.streams[1].data_received = lambda *_: None  # type: ignore[method-assign,assignment]
        piece = frame(DATA, 0, 1, bytes(16_384))
        for _ in range(12_000):
            server.take(piece)
        assert not server.connection.closed

    def test_that_send_small_pieces_over_a_slow_link(self) -> None:
        server = open_(head(1))
        clock = timed(server)
        server.streams[1].data_received = lambda *_: None  # type: ignore[method-assign,assignment]
        piece = frame(DATA, 0, 1, bytes(SMALL_BYTES - 1))
        for _ in range(30_000):
            clock.now += 1 / 900
            server.take(piece)
        assert not server.connection.closed

    def test_whose_calls_all_reach_their_deadline(self) -> None:
        server = open_(*(head(stream) for stream in range(1, 2000, 2)))
        timed(server)
        server.take(*(reset(stream) for stream in range(1, 2000, 2)))
        assert not server.connection.closed


class TestTurns:
    @pytest.mark.parametrize(
        ("sent", "most"),
        [
            (frame(PING, 0, 0, bytes(8)) * 600, TURN_FRAMES),
            (b"".join(head(stream) for stream in range(1, 1200, 2)), TURN_FRAMES // 8),
        ],
    )
    def test_so_many_frames_are_handled_at_once(self, sent: bytes, most: int) -> None:
        server = open_()
        handled = []
        server.connection.receive(sent)
        handled.append(len(server.told()) + len(server.events))
        while server.connection.frames.pending:
            before = len(server.events)
            server.connection.receive(b"")
            handled.append(len(server.told()) + len(server.events) - before)
        assert max(handled) <= most
        assert sum(handled) == 600

    def test_a_long_field_block_counts_more(self) -> None:
        field = b"\x40\x01x\x04aaaa" + b"\xbe" * 5_000
        sent = b"".join(frame(HEADERS, END_HEADERS, stream, field) for stream in (1, 3, 5, 7))
        server = open_()
        server.connection.receive(sent)
        assert server.connection.frames.pending
        assert list(server.events) == [1, 3, 5]

    def test_what_arrives_meanwhile_comes_afterwards(self) -> None:
        server = open_(head(1))
        for begin in range(0, 1000, 250):
            content = struct.pack(">250H", *range(begin, begin + 250))
            server.connection.receive(
                b"".join(frame(DATA, 0, 1, content[at : at + 2]) for at in range(0, 500, 2))
            )
        while server.connection.frames.pending:
            server.connection.receive(b"")
        assert server.events[1][1:] == [("data", struct.pack(">1000H", *range(1000)))]

    def test_nothing_is_pending_at_the_end(self) -> None:
        server = open_(head(1, flags=0), *[frame(CONTINUATION, 0, 1, b"")] * 500)
        server.take(frame(CONTINUATION, END_HEADERS, 1))
        assert not server.connection.frames.pending
