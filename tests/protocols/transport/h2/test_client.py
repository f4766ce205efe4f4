"""The client's end of HTTP/2, without a socket: the same calls however the bytes are cut, and no way to harm it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.h2.client import STREAM_WINDOW, ClientConnection
from interlingua.protocols.transport.h2.frame_reader import MAX_FIELD_BLOCK
from interlingua.protocols.transport.h2.frames import MAX_STREAM_ID, PREFACE, Code
from interlingua.protocols.transport.h2.hpack import FieldLines
from interlingua.protocols.transport.h2.hpack_encoder import HpackEncoder
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
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    Reader,
    block,
    frame,
    settings,
    window_update,
)

BLOCK = b"\x82"
HELLO = settings()
OK = block([(":status", "200"), ("content-type", "application/grpc")])
DONE = block([("grpc-status", "0")])
ENDED = END_HEADERS | END_STREAM


class Recorder(Stream):
    """Keeps what is called, data joined where it comes in pieces."""

    def __init__(self, client: Client) -> None:
        super().__init__(0, 0, False)
        self.client = client
        self.events: list[tuple[Any, ...]] = []

    def headers_received(self, headers: FieldLines, ended: bool) -> None:
        self.events.append(("headers", dict(headers), ended))
        if ended:
            self.client.connection.release(self)

    def data_received(self, data: bytes, start: int, stop: int, ended: bool) -> None:
        if self.events and self.events[-1][0] == "data":
            # extended in place: an answer of many pieces would be copied for each
            self.events[-1][1].extend(memoryview(data)[start:stop])
        elif stop > start:
            self.events.append(("data", bytearray(data[start:stop])))
        if ended:
            self.events.append(("ended",))
            self.client.connection.release(self)

    def on_reset(self, code: int) -> None:
        self.events.append(("reset", code))

    def on_lost(self) -> None:
        self.events.append(("lost",))

    def on_unprocessed(self) -> None:
        self.events.append(("unprocessed",))


@dataclass
class Client:
    """A connection with everything that it does."""

    sent: list[bytes] = field(default_factory=list)
    reader: Reader = field(default_factory=Reader)
    changes: int = 0

    def __post_init__(self) -> None:
        def write(*pieces: Buffer) -> None:
            self.sent.extend(map(bytes, pieces))

        self.connection: ClientConnection[FieldLines, Recorder] = ClientConnection(
            lambda given: given, write, self.changed
        )
        assert b"".join(self.sent).startswith(PREFACE)
        self.sent[0] = self.sent[0].removeprefix(PREFACE)

    def changed(self) -> None:
        self.changes += 1

    def ask(self, body: bytes = b"x", count: int = 1) -> list[Recorder]:
        """Make requests."""
        made = [Recorder(self) for _ in range(count)]
        for stream in made:
            self.connection.open(stream)
            self.connection.sender.send_whole(stream, BLOCK, (body,), len(body))
        return made

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


def open_(*parts: bytes, count: int = 1, body: bytes = b"x") -> tuple[Client, list[Recorder]]:
    """A connection whose server has said hello, with requests."""
    client = Client()
    client.take(HELLO, *parts)
    streams = client.ask(body, count)
    client.told()
    return client, streams


def shown(frames: list[Frame]) -> list[tuple[int, int]]:
    """Kind and stream of frames."""
    return [(each.kind, each.stream) for each in frames]


ANSWERS = b"".join(
    (
        settings((4, 100_000), (5, 20_000), (0x99, 7)),
        frame(HEADERS, END_HEADERS, 3, OK),
        frame(DATA, 0, 3, b"ab"),
        frame(HEADERS, 0, 1, OK[:7]),
        frame(CONTINUATION, END_HEADERS, 1, OK[7:]),
        frame(PING, 0, 0, b"12345678"),
        frame(DATA, PADDED, 3, b"\x03cd\0\0\0"),
        frame(0x42, 0, 1, b"unknown"),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(DATA, 0, 1, b"y" * 20_000),
        frame(HEADERS, ENDED, 3, DONE),
        window_update(3, 1000),
        frame(RST_STREAM, 0, 5, struct.pack(">L", 8)),
        frame(GOAWAY, 0, 0, struct.pack(">LL", 7, 0) + b"bye"),
        frame(HEADERS, ENDED, 1, DONE),
        frame(DATA, 0, 7, b"z"),
        frame(DATA, END_STREAM, 7),
    )
)

HEAD = ("headers", {b":status": b"200", b"content-type": b"application/grpc"}, False)
END = ("headers", {b"grpc-status": b"0"}, True)


class TestCuts:
    def test_the_calls(self) -> None:
        client = Client()
        streams = client.ask(count=5)
        client.told()
        frames = client.take(ANSWERS)
        assert [each.events for each in streams] == [
            [HEAD, ("data", b"y" * 20_000), END],
            [HEAD, ("data", b"abcd"), END],
            [("reset", 8)],
            [("data", b"z"), ("ended",)],
            [("unprocessed",)],
        ]
        assert shown(frames) == [(SETTINGS, 0), (PING, 0)]
        assert not client.connection.streams and not client.connection.closed
        assert not client.connection.usable
        assert client.connection.going_away == "GOAWAY NO_ERROR bye"

    @given(st.lists(st.integers(0, len(ANSWERS)), max_size=12))
    def test_however_they_are_cut(self, cuts: list[int]) -> None:
        whole, cut = Client(), Client()
        expected, streams = whole.ask(count=5), cut.ask(count=5)
        whole.take(ANSWERS)
        places = [0, *sorted(cuts), len(ANSWERS)]
        for start, stop in pairwise(places):
            cut.take(ANSWERS[start:stop])
        assert [each.events for each in streams] == [each.events for each in expected]
        assert not cut.connection.closed

    def test_byte_by_byte(self) -> None:
        whole, cut = Client(), Client()
        expected, streams = whole.ask(count=5), cut.ask(count=5)
        whole.told(), cut.told()
        for index in range(len(ANSWERS)):
            cut.connection.receive(ANSWERS[index : index + 1])
        assert cut.told() == whole.take(ANSWERS)
        assert [each.events for each in streams] == [each.events for each in expected]


class TestGarbage:
    @given(st.binary(max_size=400), st.booleans())
    def test_of_any_kind_ends_the_connection_at_most(self, garbage: bytes, greeted: bool) -> None:
        client = Client()
        client.ask()
        client.take(HELLO if greeted else b"", garbage)

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 12),
                st.integers(0, 255),
                st.integers(0, 12),
                st.one_of(
                    st.binary(max_size=40),
                    st.sampled_from((OK, DONE, bytes(8), bytes(4), b"\0\4\0\0\0\1", b"\x7f\xff\xff\xff")),
                ),
            ),
            max_size=30,
        ),
        st.integers(1, 100),
    )
    def test_of_frames(self, frames: list[tuple[int, int, int, bytes]], step: int) -> None:
        sent = b"".join(frame(*each) for each in frames)
        client, streams = open_(count=4)
        for start in range(0, len(sent), step):
            client.take(sent[start : start + step])
        client.connection.connection_lost()
        assert all(
            stream.events[-1][0] in ("ended", "reset", "lost", "unprocessed") or stream.events[-1][2]
            for stream in streams
        )

    @given(st.integers(0, len(ANSWERS) - 1), st.integers(0, 255))
    def test_a_byte_that_is_another(self, place: int, value: int) -> None:
        client = Client()
        client.ask(count=5)
        client.take(ANSWERS[:place] + bytes((value,)) + ANSWERS[place + 1 :])


BROKEN: dict[str, tuple[bytes, Code]] = {
    "data_of_nothing": (frame(DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
    "data_of_a_stream_never_opened": (frame(DATA, 0, 3, b"x"), Code.PROTOCOL_ERROR),
    "headers_of_a_stream_never_opened": (frame(HEADERS, ENDED, 3, OK), Code.PROTOCOL_ERROR),
    "reset_of_a_stream_never_opened": (frame(RST_STREAM, 0, 3, bytes(4)), Code.PROTOCOL_ERROR),
    "window_of_a_stream_never_opened": (window_update(3, 1), Code.PROTOCOL_ERROR),
    "headers_of_an_even_stream": (frame(HEADERS, ENDED, 2, OK), Code.PROTOCOL_ERROR),
    "push": (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + OK), Code.PROTOCOL_ERROR),
    "no_window": (window_update(0, 0), Code.PROTOCOL_ERROR),
    "window_too_large": (window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
    "windows_too_large": (settings((4, 2**31)), Code.FLOW_CONTROL_ERROR),
    "frames_too_small": (settings((5, 100)), Code.PROTOCOL_ERROR),
    "goaway_too_short": (frame(GOAWAY, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
    "unreadable_headers": (frame(HEADERS, END_HEADERS, 1, b"\xff\xff"), Code.COMPRESSION_ERROR),
    "frame_too_large": ((2**24 - 1).to_bytes(3, "big") + b"\0\0\0\0\0\1", Code.FRAME_SIZE_ERROR),
    "headers_too_large": (
        (MAX_FIELD_BLOCK + 300).to_bytes(3, "big") + b"\1\0\0\0\0\1",
        Code.ENHANCE_YOUR_CALM,
    ),
    "headers_without_end": (
        frame(HEADERS, 0, 1, OK) + frame(CONTINUATION, 0, 1, bytes(16_384)) * 17,
        Code.ENHANCE_YOUR_CALM,
    ),
    "many_pings": (frame(PING, 0, 0, bytes(8)) * 1100, Code.ENHANCE_YOUR_CALM),
    "many_settings": (settings() * 1100, Code.ENHANCE_YOUR_CALM),
    "many_goaways": (frame(GOAWAY, 0, 0, bytes(3) + b"\1" + bytes(4)) * 1100, Code.ENHANCE_YOUR_CALM),
    "much_empty_data": (frame(DATA, 0, 1) * 1100, Code.ENHANCE_YOUR_CALM),
    "late_headers": (
        frame(RST_STREAM, 0, 1, bytes(4)) + frame(HEADERS, END_HEADERS, 1, OK) * 1100,
        Code.ENHANCE_YOUR_CALM,
    ),
}


class TestRules:
    @pytest.mark.parametrize("name", BROKEN)
    def test_a_rule_that_is_broken_ends_the_connection(self, name: str) -> None:
        sent, code = BROKEN[name]
        client, (stream,) = open_()
        last = client.take(sent)[-1]
        assert (last.kind, last.code) == (GOAWAY, code), last.payload
        assert client.connection.closed and client.connection.fault is not None
        assert stream.events[-1][0] in ("lost", "reset")
        assert client.take(frame(DATA, 0, 1, b"x")) == []

    @pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(PING, 0, 0, bytes(8))])
    def test_a_server_that_does_not_begin_with_settings(self, said: bytes) -> None:
        client = Client()
        client.take(said)
        assert client.connection.closed and "not HTTP/2" in str(client.connection.fault)

    @pytest.mark.parametrize(
        ("sent", "code"),
        [(window_update(1, 0), Code.PROTOCOL_ERROR), (window_update(1, 2**31 - 1), Code.FLOW_CONTROL_ERROR)],
    )
    def test_one_of_a_stream_ends_the_stream(self, sent: bytes, code: Code) -> None:
        client, streams = open_(count=2)
        last = client.take(sent)[-1]
        assert (last.kind, last.stream, last.code) == (RST_STREAM, 1, code)
        assert streams[0].events == [("reset", code)]
        client.take(frame(HEADERS, END_HEADERS, 3, OK), frame(HEADERS, ENDED, 3, DONE))
        assert streams[1].events == [HEAD, END]

    def test_more_data_than_the_window_allows(self) -> None:
        client, (stream,) = open_()
        stream.window_held = True
        for _ in range(65):
            frames = client.take(frame(DATA, 0, 1, bytes(1 << 20)))
        assert [each.code for each in frames if each.kind == RST_STREAM] == [Code.FLOW_CONTROL_ERROR]
        assert stream.events[-1] == ("reset", Code.FLOW_CONTROL_ERROR)

    def test_answers_to_a_cancelled_request_are_ignored(self) -> None:
        client, (stream,) = open_()
        client.connection.cancel(stream)
        (told,) = client.told()
        assert (told.kind, told.code) == (RST_STREAM, Code.CANCEL)
        late = frame(HEADERS, END_HEADERS, 1, OK) + frame(DATA, 0, 1, b"x") + frame(HEADERS, ENDED, 1, DONE)
        assert client.take(late, window_update(1, 5), frame(RST_STREAM, 0, 1, bytes(4))) == []
        assert stream.events == [] and not client.connection.closed


class TestRequests:
    def test_a_request_is_headers_and_data(self) -> None:
        client = Client()
        client.take(HELLO)
        client.told()
        client.ask(b"ab", count=2)
        frames = client.told()
        assert shown(frames) == [(HEADERS, 1), (DATA, 1), (HEADERS, 3), (DATA, 3)]
        assert [each.flags for each in frames[:2]] == [END_HEADERS, END_STREAM]

    def test_data_beyond_the_window_waits(self) -> None:
        client = Client()
        client.take(settings((4, 10)))
        (stream,) = client.ask(b"z" * 25)
        frames = [each for each in client.told() if each.kind == DATA]
        assert [(len(each.payload), each.flags) for each in frames] == [(10, 0)]
        (more,) = client.take(window_update(1, 10))
        assert (len(more.payload), more.flags) == (10, 0) and not stream.half_closed_local
        (last,) = client.take(settings((4, 100)))[1:]
        assert (len(last.payload), last.flags) == (5, END_STREAM) and stream.half_closed_local

    def test_frames_are_as_large_as_the_server_takes(self) -> None:
        client = Client()
        client.take(settings((4, 1 << 20), (5, 20_000)))
        client.told()
        client.ask(b"z" * 50_000)
        frames = [each for each in client.told() if each.kind == DATA]
        assert [(len(each.payload), each.flags) for each in frames] == [(20_000, 0), (20_000, 0), (10_000, 1)]

    def test_a_request_may_end_after_its_last_piece(self) -> None:
        client = Client()
        client.take(HELLO)
        stream = Recorder(client)
        client.connection.open(stream)
        client.connection.sender.send_headers(stream, BLOCK)
        client.connection.sender.send(stream, (b"a",))
        client.connection.sender.send(stream, (), ended=True)
        frames = [each for each in client.told() if each.kind == DATA]
        assert [(each.payload, each.flags) for each in frames] == [(b"a", 0), (b"", END_STREAM)]

    def test_an_answer_before_the_request_has_ended_stops_it(self) -> None:
        client, (stream,) = open_(body=b"z" * 100_000)
        last = client.take(frame(HEADERS, ENDED, 1, OK))[-1]
        assert (last.kind, last.code) == (RST_STREAM, Code.NO_ERROR)
        assert stream.queued == 0 and client.take(window_update(0, 1 << 20)) == []

    def test_a_large_answer_does_not_wait_for_its_window(self) -> None:
        client, (stream,) = open_()
        given_back = 0
        left = STREAM_WINDOW
        for _ in range(256):
            left -= 1 << 20
            assert left >= STREAM_WINDOW // 2 - (1 << 20)
            for each in client.take(frame(DATA, 0, 1, bytes(1 << 20))):
                given_back += int.from_bytes(each.payload, "big")
                left += int.from_bytes(each.payload, "big") if each.stream else 0
        kind, content = stream.events[-1]
        assert given_back and kind == "data" and len(content) == 256 << 20


class TestLimits:
    def test_the_servers_streams(self) -> None:
        client, (first, _) = open_(settings((3, 2)), count=2)
        assert client.connection.usable and not client.connection.available
        client.take(frame(HEADERS, ENDED, first.id, DONE))
        assert client.connection.available
        client.take(settings((3, 0)))
        assert client.connection.usable and not client.connection.available

    def test_nothing_is_sent_before_the_servers_settings(self) -> None:
        client = Client()
        assert client.connection.usable and not client.connection.available
        client.take(HELLO)
        assert client.connection.available and client.changes == 1

    def test_numbers_of_streams_end(self) -> None:
        client, _ = open_()
        client.connection.last_id = MAX_STREAM_ID
        assert not client.connection.usable

    def test_goaway_in_two_steps(self) -> None:
        client, streams = open_(count=3)
        client.take(frame(GOAWAY, 0, 0, struct.pack(">LL", MAX_STREAM_ID, 0)))
        assert not client.connection.usable and all(not each.events for each in streams)
        client.take(frame(GOAWAY, 0, 0, struct.pack(">LL", 3, 0)))
        assert [each.events for each in streams] == [[], [], [("unprocessed",)]]
        client.take(frame(HEADERS, ENDED, 1, DONE), frame(HEADERS, ENDED, 3, DONE))
        assert [each.events[-1] for each in streams] == [END, END, ("unprocessed",)]

    def test_a_refused_stream(self) -> None:
        client, (stream,) = open_()
        client.take(frame(RST_STREAM, 0, 1, struct.pack(">L", Code.REFUSED_STREAM)))
        assert stream.events == [("reset", Code.REFUSED_STREAM)] and client.connection.usable

    def test_a_ping_is_answered_and_ours_is_acknowledged(self) -> None:
        client, _ = open_()
        (pong,) = client.take(frame(PING, 0, 0, b"12345678"))
        assert (pong.kind, pong.flags, pong.payload) == (PING, ACK, b"12345678")
        client.connection.ping()
        assert client.connection.ping_pending
        client.take(frame(PING, ACK, 0, bytes(8)))
        assert not client.connection.ping_pending


LINES = st.tuples(
    st.sampled_from((b":method", b":path", b"te", b"x-a", b"grpc-timeout")),
    st.one_of(st.sampled_from((b"POST", b"/", b"trailers", b"")), st.binary(max_size=300)),
)


class TestEncoder:
    @given(st.lists(st.lists(LINES, max_size=6), max_size=30), st.integers(0, 30), st.integers(0, 8192))
    def test_what_is_encoded_is_decoded(
        self, blocks: list[list[tuple[bytes, bytes]]], place: int, size: int
    ) -> None:
        encoder, decoder = HpackEncoder(), Decoder()
        for index, lines in enumerate(blocks):
            if index == place:
                encoder.limit_table(size)
            assert [tuple(each) for each in decoder.decode(encoder.indexed(*lines), raw=True)] == lines

    def test_a_line_that_returns_takes_a_byte(self) -> None:
        encoder = HpackEncoder()
        lines = [(b":path", b"/a.B/C"), (b"te", b"trailers"), (b":method", b"POST")]
        first = encoder.indexed(*lines)
        generation = encoder.generation
        assert len(first) > 20 and len(encoder.indexed(*lines)) == 3
        assert encoder.generation == generation

    def test_a_peer_without_a_table(self) -> None:
        encoder = HpackEncoder()
        encoder.indexed((b"a", b"b"))
        encoder.limit_table(0)
        assert encoder.indexed((b"a", b"b")) == b"\x20\x00\x01a\x01b"
        assert encoder.indexed((b"a", b"b")) == b"\x00\x01a\x01b"


def test_window_updates_name_the_connection() -> None:
    client = Client()
    frames = client.told()
    assert shown(frames) == [(SETTINGS, 0), (WINDOW_UPDATE, 0)]
