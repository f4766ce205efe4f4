"""The server's side of HTTP/2, without a socket: the same calls however the bytes are cut, and no way to harm it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.grpc.headers import ANSWER_HEADERS, OK
from interlingua.protocols.transport.h2.frame_reader import MAX_FIELD_BLOCK
from interlingua.protocols.transport.h2.frames import PREFACE, Code
from interlingua.protocols.transport.h2.hpack import FieldLines
from interlingua.protocols.transport.h2.options import MAX_STREAMS, Http2Options
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer
from tests.protocols.transport.h2.peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PRIORITY_FIELDS,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    START,
    WINDOW_UPDATE,
    Frame,
    Reader,
    block,
    fields,
    frame,
    head,
    settings,
    window_update,
)

Event = tuple[Any, ...]


class Recorder(Stream):
    """Keeps what is called, data joined where it comes in pieces."""

    def __init__(self, server: Server, number: int, ended: bool) -> None:
        super().__init__(number, server.connection.sender.initial_window, ended)
        self.server = server
        self.drains = 0

    def data_received(self, data: bytes, start: int, stop: int, ended: bool) -> None:
        events = self.server.events[self.id]
        if data[start:stop]:
            if events and events[-1][0] == "data":
                events[-1] = ("data", events[-1][1] + data[start:stop])
            else:
                events.append(("data", data[start:stop]))
        if ended:
            events.append(("ended",))
        if ended and self.server.echoes:
            content = b"".join(event[1] for event in events if event[0] == "data")
            self.server.connection.sender.send_whole(self, ANSWER_HEADERS, (content,), len(content), OK)

    def on_reset(self, code: int) -> None:
        self.server.events[self.id].append(("abandoned",))

    def on_drained(self) -> None:
        self.drains += 1


@dataclass
class Server:
    """A connection with everything that it does."""

    echoes: bool = False
    sent: list[bytes] = field(default_factory=list)
    events: dict[int, list[Event]] = field(default_factory=dict)
    streams: dict[int, Recorder] = field(default_factory=dict)
    reader: Reader = field(default_factory=Reader)

    def __post_init__(self) -> None:
        def write(*pieces: Buffer) -> None:
            self.sent.extend(map(bytes, pieces))

        self.connection: ServerConnection[FieldLines] = ServerConnection(
            lambda given: given, self.accept, write, Http2Options(stream_window=8 << 20)
        )

    def accept(self, connection: Any, number: int, given: FieldLines, ended: bool) -> Stream:
        self.events[number] = [("head", dict(given).get(b":path"))]
        stream = self.streams[number] = Recorder(self, number, ended)
        return stream

    def take(self, *parts: bytes) -> list[Frame]:
        """Let it receive, in as many turns as it takes; what it sends."""
        self.connection.receive(b"".join(parts))
        while self.connection.frames.pending:
            self.connection.receive(b"")
        return self.told()

    def told(self) -> list[Frame]:
        """What it has sent since it was last asked."""
        data, self.sent = b"".join(self.sent), []
        return self.reader.feed(data)


def open_(*parts: bytes, **options: Any) -> Server:
    """A connection that has begun; what it stated of itself is forgotten."""
    server = Server(**options)
    server.take(START, *parts)
    return server


def shown(frames: Iterable[Frame]) -> list[tuple[int, int]]:
    """Kind and stream of frames."""
    return [(each.kind, each.stream) for each in frames]


EXCHANGE = b"".join(
    (
        START,
        head(1),
        frame(DATA, 0, 1, b"ab"),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(HEADERS, 0, 3, block(fields())[:7]),
        frame(CONTINUATION, END_HEADERS, 3, block(fields())[7:]),
        frame(PING, 0, 0, b"12345678"),
        frame(DATA, PADDED, 1, b"\x03cd\0\0\0"),
        frame(0x42, 0, 1, b"unknown"),
        frame(DATA, PADDED | END_STREAM, 1, b"\x00ef"),
        settings((4, 100_000), (5, 20_000), (0x99, 7)),
        frame(
            HEADERS, END_HEADERS | PADDED | PRIORITY_FIELDS, 5, b"\x02" + bytes(5) + block(fields()) + b"\0\0"
        ),
        frame(DATA, 0, 3, b"y" * 20_000),
        window_update(3, 1000),
        window_update(0, 1000),
        frame(RST_STREAM, 0, 5, struct.pack(">L", 8)),
        frame(DATA, END_STREAM, 3),
        frame(GOAWAY, 0, 0, bytes(8)),
    )
)


class TestCuts:
    def test_the_calls(self) -> None:
        server = Server(echoes=True)
        frames = server.take(EXCHANGE)
        assert server.events == {
            1: [("head", b"/test.Echo/Call"), ("data", b"abcdef"), ("ended",)],
            3: [("head", b"/test.Echo/Call"), ("data", b"y" * 20_000), ("ended",)],
            5: [("head", b"/test.Echo/Call"), ("abandoned",)],
        }
        assert shown(frames) == [
            (SETTINGS, 0),
            (WINDOW_UPDATE, 0),
            (SETTINGS, 0),
            (PING, 0),
            *((kind, 1) for kind in (HEADERS, DATA, HEADERS)),
            (SETTINGS, 0),
            *((kind, 3) for kind in (HEADERS, DATA, HEADERS)),
        ]
        assert not server.connection.closed and not server.connection.streams

    @given(st.lists(st.integers(0, len(EXCHANGE)), max_size=12))
    def test_however_they_are_cut(self, cuts: list[int]) -> None:
        whole, cut = Server(echoes=True), Server(echoes=True)
        whole.take(EXCHANGE)
        places = [0, *sorted(cuts), len(EXCHANGE)]
        for start, stop in pairwise(places):
            cut.take(EXCHANGE[start:stop])
        assert cut.events == whole.events
        assert not cut.connection.closed

    def test_byte_by_byte(self) -> None:
        whole, cut = Server(echoes=True), Server(echoes=True)
        for index in range(len(EXCHANGE)):
            cut.connection.receive(EXCHANGE[index : index + 1])
        assert cut.told() == whole.take(EXCHANGE)
        assert cut.events == whole.events


class TestGarbage:
    @given(st.binary(max_size=400), st.booleans())
    def test_of_any_kind_ends_the_connection_at_most(self, garbage: bytes, greeted: bool) -> None:
        server = Server(echoes=True)
        server.take(START if greeted else b"", garbage)

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 12),
                st.integers(0, 255),
                st.integers(0, 12),
                st.one_of(
                    st.binary(max_size=40),
                    st.sampled_from(
                        (block(fields()), bytes(8), bytes(4), b"\0\4\0\0\0\1", b"\x7f\xff\xff\xff")
                    ),
                ),
            ),
            max_size=30,
        ),
        st.integers(1, 100),
    )
    def test_of_frames(self, frames: list[tuple[int, int, int, bytes]], step: int) -> None:
        sent = b"".join(frame(*each) for each in frames)
        server = open_(echoes=True)
        for start in range(0, len(sent), step):
            server.take(sent[start : start + step])
        server.connection.connection_lost()
        ends = ("ended", "abandoned")
        assert all(any(event[0] in ends for event in events) for events in server.events.values())

    @given(st.integers(0, len(EXCHANGE) - 1), st.integers(0, 255))
    def test_a_byte_that_is_another(self, place: int, value: int) -> None:
        server = Server(echoes=True)
        server.take(EXCHANGE[:place] + bytes((value,)) + EXCHANGE[place + 1 :])

    @given(st.binary(max_size=60))
    def test_blocks(self, garbage: bytes) -> None:
        server = open_(frame(HEADERS, END_HEADERS, 1, garbage))
        assert server.connection.closed or 1 in server.events


BROKEN: dict[str, tuple[bytes, Code]] = {
    "no_settings": (frame(PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
    "even_stream": (START[24:] + head(2), Code.PROTOCOL_ERROR),
    "headers_of_nothing": (START[24:] + head(0), Code.PROTOCOL_ERROR),
    "data_of_nothing": (START[24:] + frame(DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
    "data_before_headers": (START[24:] + frame(DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
    "reset_of_nothing": (START[24:] + frame(RST_STREAM, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
    "reset_of_an_even_stream": (START[24:] + frame(RST_STREAM, 0, 2, bytes(4)), Code.PROTOCOL_ERROR),
    "room_before_headers": (START[24:] + window_update(1, 1), Code.PROTOCOL_ERROR),
    "reset_too_short": (START[24:] + head(1) + frame(RST_STREAM, 0, 1, b"x"), Code.FRAME_SIZE_ERROR),
    "priority_too_short": (START[24:] + frame(PRIORITY, 0, 1, b"x"), Code.FRAME_SIZE_ERROR),
    "priority_of_nothing": (START[24:] + frame(PRIORITY, 0, 0, bytes(5)), Code.PROTOCOL_ERROR),
    "settings_of_a_stream": (START[24:] + frame(SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
    "settings_cut_short": (START[24:] + frame(SETTINGS, 0, 0, bytes(5)), Code.FRAME_SIZE_ERROR),
    "ack_with_settings": (START[24:] + frame(SETTINGS, ACK, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
    "window_too_large": (START[24:] + settings((4, 2**31)), Code.FLOW_CONTROL_ERROR),
    "frames_too_small": (START[24:] + settings((5, 16_383)), Code.PROTOCOL_ERROR),
    "push_of_what": (START[24:] + settings((2, 2)), Code.PROTOCOL_ERROR),
    "push": (START[24:] + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), Code.PROTOCOL_ERROR),
    "ping_of_a_stream": (START[24:] + frame(PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "ping_too_short": (START[24:] + frame(PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
    "goaway_of_a_stream": (START[24:] + frame(GOAWAY, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "goaway_too_short": (START[24:] + frame(GOAWAY, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
    "room_too_short": (START[24:] + frame(WINDOW_UPDATE, 0, 0, bytes(3)), Code.FRAME_SIZE_ERROR),
    "no_room": (START[24:] + window_update(0, 0), Code.PROTOCOL_ERROR),
    "too_much_room": (START[24:] + window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
    "continuation_of_nothing": (START[24:] + frame(CONTINUATION, END_HEADERS, 1), Code.PROTOCOL_ERROR),
    "interrupted_headers": (START[24:] + head(1, flags=0) + frame(PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
    "data_in_headers": (START[24:] + head(1, flags=0) + frame(DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
    "another_continuation": (
        START[24:] + head(1, flags=0) + frame(CONTINUATION, END_HEADERS, 3),
        Code.PROTOCOL_ERROR,
    ),
    "unreadable_headers": (START[24:] + frame(HEADERS, END_HEADERS, 1, b"\xff\xff"), Code.COMPRESSION_ERROR),
    "padding_above_frame": (START[24:] + head(1) + frame(DATA, PADDED, 1, b"\x05abc"), Code.PROTOCOL_ERROR),
    "padding_without_length": (START[24:] + head(1) + frame(DATA, PADDED, 1), Code.FRAME_SIZE_ERROR),
    "padding_above_headers": (
        START[24:] + frame(HEADERS, END_HEADERS | PADDED, 1, b"\x09abc"),
        Code.PROTOCOL_ERROR,
    ),
    "frame_too_large": (START[24:] + (2**24 - 1).to_bytes(3, "big") + b"\0\0\0\0\0\1", Code.FRAME_SIZE_ERROR),
    "headers_too_large": (
        START[24:] + (MAX_FIELD_BLOCK + 300).to_bytes(3, "big") + b"\1\0\0\0\0\1",
        Code.ENHANCE_YOUR_CALM,
    ),
    "headers_without_end": (
        START[24:] + head(1, flags=0) + frame(CONTINUATION, 0, 1, bytes(16_384)) * 17,
        Code.ENHANCE_YOUR_CALM,
    ),
    "many_continuations": (
        START[24:] + head(1, flags=0) + frame(CONTINUATION, 0, 1) * 1100,
        Code.ENHANCE_YOUR_CALM,
    ),
    "many_pings": (START[24:] + frame(PING, 0, 0, bytes(8)) * 1100, Code.ENHANCE_YOUR_CALM),
    "many_settings": (START[24:] * 1100, Code.ENHANCE_YOUR_CALM),
    "many_priorities": (START[24:] + frame(PRIORITY, 0, 1, bytes(5)) * 1100, Code.ENHANCE_YOUR_CALM),
    "many_unknown_frames": (START[24:] + frame(99, 0, 0) * 1100, Code.ENHANCE_YOUR_CALM),
    "much_empty_data": (START[24:] + head(1) + frame(DATA, 0, 1) * 1100, Code.ENHANCE_YOUR_CALM),
    "rapid_reset": (
        START[24:]
        + b"".join(head(stream) + frame(RST_STREAM, 0, stream, bytes(4)) for stream in range(1, 4300, 2)),
        Code.ENHANCE_YOUR_CALM,
    ),
}


class TestRules:
    @pytest.mark.parametrize("name", BROKEN)
    def test_a_rule_that_is_broken_ends_the_connection(self, name: str) -> None:
        sent, code = BROKEN[name]
        server = Server()
        last = server.take(PREFACE, sent)[-1]
        assert (last.kind, last.code) == (GOAWAY, code), last.payload
        assert server.connection.closed
        assert all(events[-1] == ("abandoned",) for events in server.events.values())
        assert server.take(head(99)) == []

    @pytest.mark.parametrize(
        ("sent", "code"),
        [
            (frame(DATA, END_STREAM, 1) + frame(DATA, 0, 1, b"x"), Code.STREAM_CLOSED),
            (frame(DATA, END_STREAM, 1) + head(1), Code.STREAM_CLOSED),
            (head(1), Code.PROTOCOL_ERROR),
            (window_update(1, 0), Code.PROTOCOL_ERROR),
            (window_update(1, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
        ],
    )
    def test_one_of_a_stream_ends_the_stream(self, sent: bytes, code: Code) -> None:
        server = open_(head(1))
        last = server.take(sent)[-1]
        assert (last.kind, last.stream, last.code) == (RST_STREAM, 1, code)
        assert server.events[1][-1] == ("abandoned",)
        # what is on its way does no harm, and others go on
        assert (
            server.take(
                frame(DATA, 0, 1, b"late"), window_update(1, 5), frame(RST_STREAM, 0, 1, bytes(4)), head(1)
            )
            == []
        )
        server.take(head(3))
        assert server.events[3] == [("head", b"/test.Echo/Call")]

    def test_a_stream_that_is_reset_before_its_headers_never_opens(self) -> None:
        server = open_()
        reset = frame(RST_STREAM, 0, 5, bytes(4))
        assert server.take(reset, window_update(5, 1), frame(DATA, 0, 5, b"late"), reset) == []
        refused = [(RST_STREAM, 5)]
        assert shown(server.take(head(5))) == refused
        assert server.take(head(1), head(3), frame(DATA, 0, 5, b"late")) == []
        assert shown(server.take(head(5))) == refused
        assert server.take(head(7), reset) == []
        assert shown(server.take(head(5))) == refused
        assert list(server.events) == [1, 3, 7]

    def test_many_streams_that_are_reset_before_their_headers_cost_bounded_memory(self) -> None:
        server = open_(*(frame(RST_STREAM, 0, stream, bytes(4)) for stream in range(3, 8003, 2)))
        assert not server.connection.closed
        assert len(server.connection.reset_early) <= 1024
        server.take(head(1))
        assert list(server.events) == [1]

    def test_more_data_than_there_is_room_for(self) -> None:
        server = open_(head(1))
        server.streams[1].window_held = True
        for _ in range(9):
            frames = server.take(frame(DATA, 0, 1, bytes(1 << 20)))
        assert [each.code for each in frames if each.kind == RST_STREAM] == [Code.FLOW_CONTROL_ERROR]

    def test_trailers_end_a_request(self) -> None:
        server = open_(
            head(1), frame(DATA, 0, 1, b"x"), frame(HEADERS, END_HEADERS | END_STREAM, 1, block([("a", "b")]))
        )
        assert server.events[1][1:] == [("data", b"x"), ("ended",)]

    def test_a_request_may_be_its_head_alone(self) -> None:
        server = open_(head(1, flags=END_HEADERS | END_STREAM))
        assert server.events[1][1:] == [("ended",)]

    def test_a_peer_without_http_2_is_answered_in_http_1(self) -> None:
        server = Server()
        server.connection.receive(b"POST /v2/models HTTP/1.1\r\n\r\n")
        assert b"".join(server.sent).startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
        assert server.connection.closed

    def test_as_many_as_may_run_at_once_may_end_as_clients_end_them(self) -> None:
        server = open_(echoes=True)
        streams = range(1, 2 * MAX_STREAMS, 2)
        server.take(window_update(0, 1 << 20), *(head(stream) for stream in streams))
        server.take(*(frame(DATA, 0, stream, b"x") for stream in streams))
        server.take(*(frame(DATA, END_STREAM, stream) for stream in streams))
        server.take(*(window_update(stream, 1) + window_update(0, 1) for stream in streams))
        server.take(*(frame(RST_STREAM, 0, stream, bytes(4)) for stream in streams))
        assert not server.connection.closed and not server.connection.streams
        assert all(events[-1] == ("ended",) for events in server.events.values())

    def test_as_many_may_be_given_up_at_once(self) -> None:
        streams = range(1, 2 * MAX_STREAMS, 2)
        server = open_(*(head(stream) for stream in streams))
        server.take(*(frame(RST_STREAM, 0, stream, bytes(4)) for stream in streams))
        assert not server.connection.closed

    @pytest.mark.parametrize("size", [1, 60, 16_384])
    def test_what_is_on_its_way_to_a_stream_that_was_refused_does_no_harm(self, size: int) -> None:
        server = open_(head(1))
        server.connection.sender.send_end(server.streams[1], OK)
        for _ in range(2000):
            server.take(frame(DATA, 0, 1, bytes(size)))
        assert not server.connection.closed

    def test_the_bit_before_the_number_of_a_stream_means_nothing(self) -> None:
        server = open_(head(1 | 1 << 31), frame(DATA, END_STREAM, 1 | 1 << 31, b"x"))
        assert server.events == {1: [("head", b"/test.Echo/Call"), ("data", b"x"), ("ended",)]}

    def test_streams_have_a_number_that_is_not_exceeded(self) -> None:
        server = open_()
        server.connection.reset_at_work = MAX_STREAMS - 2
        assert shown(server.take(head(1), head(3), head(5), head(7))) == [(RST_STREAM, 5), (RST_STREAM, 7)]
        server.connection.reset_at_work = 0
        server.take(head(9))
        assert set(server.events) == {1, 3, 9}


class TestRoom:
    def answering(self, size: int, *stated: bytes) -> tuple[Server, Recorder]:
        server = open_(*stated, head(1, flags=END_HEADERS | END_STREAM))
        server.told()
        stream = server.streams[1]
        server.connection.sender.send_whole(stream, ANSWER_HEADERS, (b"z" * size,), size, OK)
        return server, stream

    def data(self, frames: Iterable[Frame]) -> int:
        return sum(len(each.payload) for each in frames if each.kind == DATA)

    def test_of_a_stream(self) -> None:
        server, stream = self.answering(25, settings((4, 10)))
        frames = server.told()
        assert self.data(frames) == 10 and frames[-1].kind == DATA and stream.queued == 15
        assert self.data(server.take(window_update(1, 5))) == 5
        frames = server.take(window_update(1, 100))
        assert self.data(frames) == 10
        assert (frames[-1].kind, frames[-1].flags) == (HEADERS, END_STREAM | END_HEADERS)
        assert stream.drains == 1 and not server.connection.streams

    def test_of_the_connection(self) -> None:
        server, _ = self.answering(100_000, settings((4, 1 << 20)))
        assert self.data(server.told()) == 65_535
        assert self.data(server.take(window_update(1, 1))) == 0
        assert self.data(server.take(window_update(0, 1_000_000))) == 100_000 - 65_535

    def test_that_is_taken_back(self) -> None:
        server, stream = self.answering(60, settings((4, 50)))
        assert self.data(server.told()) == 50
        server.take(settings((4, 20)))
        assert stream.send_window == -30
        assert self.data(server.take(window_update(1, 30))) == 0
        assert self.data(server.take(settings((4, 23)))) == 3
        assert self.data(server.take(settings((4, 1000)))) == 7

    def test_that_becomes_too_much(self) -> None:
        server = open_(head(1), window_update(1, 2**31 - 1 - 65_535))
        assert server.take(settings((4, 65_536)))[-1].code == Code.FLOW_CONTROL_ERROR

    def test_frames_are_as_large_as_the_peer_takes(self) -> None:
        server, _ = self.answering(50_000, settings((4, 1 << 20), (5, 20_000)))
        sizes = [len(each.payload) for each in server.told() if each.kind == DATA]
        assert sizes == [20_000, 20_000, 10_000]

    def test_streams_take_turns(self) -> None:
        server = open_(settings((4, 1 << 30)), *(head(stream, flags=5) for stream in (1, 3)))
        size = 1 << 21
        for stream in server.streams.values():
            server.connection.sender.send_whole(stream, ANSWER_HEADERS, (b"z" * size,), size, OK)
        server.told()
        frames = server.take(window_update(0, 4 * size))
        streams = [each.stream for each in frames if each.kind == DATA]
        assert self.data(frames) == 2 * size - 65_535
        assert streams != sorted(streams) and set(streams) == {1, 3}

    def test_a_socket_that_takes_no_more(self) -> None:
        server = open_(head(1, flags=5), head(3, flags=5))
        server.connection.sender.pause()
        for stream in server.streams.values():
            server.connection.sender.send_whole(stream, ANSWER_HEADERS, (b"z",), 1, OK)
        assert shown(server.told()) == [(HEADERS, 1), (HEADERS, 3)]
        server.connection.sender.resume()
        assert shown(server.told()) == [(DATA, 1), (HEADERS, 1), (DATA, 3), (HEADERS, 3)]

    def test_what_waits_for_a_stream_that_is_given_up_is_dropped(self) -> None:
        server, _ = self.answering(100, settings((4, 10)))
        server.told()
        server.take(frame(RST_STREAM, 0, 1, struct.pack(">L", 8)))
        assert server.take(window_update(0, 1000)) == []
        assert server.events[1][-1] == ("abandoned",)

    def test_a_peer_is_given_room_as_it_uses_it(self) -> None:
        server = open_(head(1))
        given = {0: 0, 1: 0}
        sent = 0
        for _ in range(40):
            sent += 1 << 20
            for each in server.take(frame(DATA, 0, 1, bytes(1 << 20))):
                if each.kind == WINDOW_UPDATE:
                    given[each.stream] += int.from_bytes(each.payload, "big")
        assert sent - (8 << 20) <= given[1] <= sent
        assert sent - (16 << 20) <= given[0] <= sent

    def test_but_not_on_a_stream_that_holds(self) -> None:
        server = open_(head(1))
        stream = server.streams[1]
        stream.window_held = True
        frames = [each for _ in range(8) for each in server.take(frame(DATA, 0, 1, bytes(1 << 20)))]
        assert [each.stream for each in frames] == [0]
        stream.window_held = False
        server.connection.replenish(stream)
        (given_back,) = server.told()
        assert int.from_bytes(given_back.payload, "big") == 8 << 20


class TestEnds:
    def test_an_answer_before_the_request_has_ended_stops_it(self) -> None:
        server = open_(head(1))
        server.connection.sender.send_whole(server.streams[1], ANSWER_HEADERS, (b"z",), 1, OK)
        last = server.told()[-1]
        assert (last.kind, last.code) == (RST_STREAM, Code.NO_ERROR)

    def test_leaving(self) -> None:
        server = open_(head(1))
        server.connection.announce_shutdown()
        told, asked = server.told()
        assert (told.kind, told.payload[:4], told.code) == (GOAWAY, b"\x7f\xff\xff\xff", 0)
        assert asked.kind == PING and server.connection.ping_pending
        server.take(head(3), frame(PING, ACK, 0, asked.payload))
        assert 3 in server.events and not server.connection.ping_pending
        server.connection.refuse_new()
        (told,) = server.told()
        assert (told.kind, told.payload[:4]) == (GOAWAY, b"\0\0\0\3")
        server.take(head(5), frame(DATA, 0, 5, b"x"), frame(DATA, END_STREAM, 3, b"y"))
        assert 5 not in server.events and server.events[3][-1] == ("ended",)

    def test_a_peer_that_is_gone(self) -> None:
        server = open_(head(1), head(3))
        server.connection.connection_lost()
        assert [events[-1] for events in server.events.values()] == [("abandoned",)] * 2
        assert not server.connection.streams
