"""The client's reading side of an HTTP/1 connection: its states, and answers that are cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.http1 import reply_reader
from interlingua.protocols.transport.http1.body import BodyError
from interlingua.protocols.transport.http1.headers import MAX_FIELDS, MAX_HEADERS_BYTES, HeadersError
from interlingua.protocols.transport.http1.reply_headers import UNTIL_CLOSE, parse_reply_headers
from interlingua.protocols.transport.http1.reply_reader import (
    REPLY_TRANSITIONS,
    ReplyEvent,
    ReplyReader,
    ReplyState,
)

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-Kind: a b\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nA: b\r\n\r\n"
)
LENIENT = b"HTTP/1.1 200 OK\nContent-Length: 11\nX-Kind: a\r\n b\n\nhello world"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
ENDLESS = b"HTTP/1.0 200 OK\r\n\r\nhello world"
ANSWERS = {SIZED: b"hello world", CHUNKED: b"hello world", LENIENT: b"hello world", EMPTY: b""}


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts} - {0, len(data)}), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def read(reader: ReplyReader, data: bytes, cuts: list[int], **options: bool) -> bytes:
    """The body of the answer in ``data``, in place where that is possible."""
    reader.begin(**options)
    taken = b""
    for piece in pieces(data, cuts):
        while piece and reader.missing:
            buffer = reader.body_buffer()
            count = min(len(buffer), len(piece))
            buffer[:count] = piece[:count]
            reader.body_filled(count)
            piece = piece[count:]
        if piece:
            reader.receive(piece)
        taken += reader.take()
    return bytes(reader.body) or taken


class TestStates:
    def test_every_state_can_fail_and_is_reached(self) -> None:
        assert set(REPLY_TRANSITIONS) == set(ReplyState)
        assert all(row[ReplyEvent.FAULT] is ReplyState.SPOILED for row in REPLY_TRANSITIONS.values())
        assert {state for row in REPLY_TRANSITIONS.values() for state in row.values()} == set(ReplyState)

    def test_a_spoiled_connection_takes_no_request(self) -> None:
        reader = ReplyReader()
        reader.receive(SIZED)
        assert reader.state is ReplyState.SPOILED and not reader.complete
        with pytest.raises(KeyError):
            reader.begin()

    def test_a_second_answer_spoils_the_connection_not_the_first(self) -> None:
        reader = ReplyReader()
        assert read(reader, SIZED + SIZED[:1], []) == b"hello world"
        assert reader.complete and reader.state is ReplyState.SPOILED


@pytest.mark.parametrize("streamed", [False, True])
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(sorted(ANSWERS))), min_size=1, max_size=4),
    st.lists(st.integers(0, 300), max_size=30),
)
def test_answers_cut_anywhere(streamed: bool, answers: list[tuple[bool, bytes]], cuts: list[int]) -> None:
    reader = ReplyReader()
    for interim, answer in answers:
        assert read(reader, INTERIM * interim + answer, cuts, streamed=streamed) == ANSWERS[answer]
        assert reader.complete and reader.state is ReplyState.IDLE
        if answer in (SIZED, LENIENT):
            assert reader.headers.headers["x-kind"] == "a b"


@pytest.mark.parametrize("streamed", [False, True])
@given(st.lists(st.integers(0, 40), max_size=9))
def test_an_answer_that_ends_with_its_connection(streamed: bool, cuts: list[int]) -> None:
    reader = ReplyReader()
    taken = read(reader, ENDLESS, cuts, streamed=streamed)
    assert not reader.complete
    assert reader.end() and reader.complete and reader.state is ReplyState.SPOILED
    assert (taken + reader.take() if streamed else reader.body) == b"hello world"


@given(st.integers(0, len(SIZED) - 1), st.sampled_from([SIZED, CHUNKED]))
def test_an_answer_that_ends_early_is_not_complete(length: int, answer: bytes) -> None:
    reader = ReplyReader()
    read(reader, answer[:length], [])
    assert not reader.end() and not reader.complete


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=9))
def test_garbage_raises_nothing_else(garbage: bytes, cuts: list[int]) -> None:
    reader = ReplyReader()
    reader.begin()
    try:
        for piece in pieces(b"HTTP/1.1 200 OK\r\n" + garbage, cuts):
            reader.receive(piece)
    except (HeadersError, BodyError):
        return


def test_the_answer_to_head_has_no_body() -> None:
    reader = ReplyReader()
    assert read(reader, SIZED.partition(b"hello")[0], [], bodiless=True) == b""
    assert reader.complete and reader.state is ReplyState.IDLE


class TestHeaders:
    @pytest.mark.parametrize(
        ("lines", "length", "keep_alive"),
        [
            (b"1.1 200 OK\r\nContent-Length: 5", 5, True),
            (b"1.1 200 OK\r\nContent-Length: 5\r\nConnection: close", 5, False),
            (b"1.0 200 OK\r\nContent-Length: 5", 5, False),
            (b"1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive", 5, True),
            (b"1.1 200", UNTIL_CLOSE, False),
            (b"1.1 304 Not Modified\r\nContent-Length: 5", 0, True),
            (b"1.1 101 Switching Protocols\r\nUpgrade: x", 0, False),
        ],
    )
    def test_framing(self, lines: bytes, length: int, keep_alive: bool) -> None:
        found = parse_reply_headers(b"HTTP/" + lines + b"\r\n\r\n")
        assert (found.length, found.keep_alive) == (length, keep_alive)

    @pytest.mark.parametrize(
        "lines",
        [
            b"Content-Length: 5\r\nContent-Length: 6",
            b"Content-Length: 5, 5",
            b"Content-Length: -5",
            b"Content-Length: five",
            b"Content-Length: 5\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: chunked, identity",
            b"X : b",
            b"Content-Length : 5",
            b"Transfer-Encoding : chunked",
            b": b",
            b"no colon",
            b"A: b\0c",
            b"A: b\r\n" * MAX_FIELDS + b"A: b",
        ],
    )
    def test_what_could_be_read_in_two_ways(self, lines: bytes) -> None:
        with pytest.raises(HeadersError):
            parse_reply_headers(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\n")

    @pytest.mark.parametrize("line", [b"HTTP/2 200 OK", b"HTTP/1.2 200 OK", b"ICY 200 OK", b"HTTP/1.1 20 OK"])
    def test_other_protocols(self, line: bytes) -> None:
        with pytest.raises(HeadersError):
            parse_reply_headers(line + b"\r\n\r\n")

    def test_repeated_headers_are_joined(self) -> None:
        found = parse_reply_headers(b"HTTP/1.1 200 OK\r\nVia: a\r\nContent-Length: 0\r\nvia:b \r\n\r\n")
        assert found.headers == {"via": "a, b", "content-length": "0"}

    def test_a_header_section_without_end(self) -> None:
        reader = ReplyReader()
        reader.begin()
        reader.receive(b"HTTP/1.1 200 OK\r\n")
        for _ in range(MAX_HEADERS_BYTES // 1000):
            reader.receive(b"A: " + b"x" * 995 + b"\r\n")
        with pytest.raises(HeadersError, match=f"more than {MAX_HEADERS_BYTES} bytes"):
            reader.receive(b"A: " + b"x" * 995 + b"\r\n")

    def test_interim_answers_without_end(self) -> None:
        reader = ReplyReader()
        reader.begin()
        with pytest.raises(HeadersError, match="interim answers"):
            reader.receive(INTERIM * 100)


class TestRepeatedAnswers:
    """Answers that differ in Date and Server-Timing alone read as if each were the first."""

    HEADS = (
        "HTTP/1.1 200 OK\r\nDate: {0}\r\nContent-Length: 2\r\nserver-timing:{1}\r\nX: y\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nX: date\r\nSERVER-TIMING: {1}\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: {0}\r\nDate: {1}\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nDate:{0}\r\nConnection: keep-alive\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNV-Status: id {0}\r\nContent-Length: 2\r\nETag:{1}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: {0}\r\nContent-Length: 2\r\nConnection: {1}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: {0}\r\nContent-Length: 2{1}\r\n\r\n",
    )

    @staticmethod
    def _outcome(reader: ReplyReader, head: bytes, cuts: list[int]) -> object:
        try:
            body = read(reader, head + b"ok", cuts)
        except HeadersError as error:
            return str(error)
        headers = reader.headers
        return body, headers.status, dict(headers.headers), headers.keep_alive, headers.length, reader.state

    @given(
        st.sampled_from(HEADS),
        st.lists(st.tuples(*[st.text(" \tabc;=,.\r\n\0é\x85", max_size=12)] * 2), min_size=2, max_size=4),
        st.lists(st.integers(0, 400), max_size=2),
    )
    def test_repeated_headers_are_those_of_a_parse(
        self, head: str, values: list[tuple[str, str]], cuts: list[int]
    ) -> None:
        reader = ReplyReader()
        for value in values:
            sent = head.format(*value).encode("latin-1")
            if reader.state is not ReplyState.IDLE:
                reader = ReplyReader()
            assert self._outcome(reader, sent, cuts) == self._outcome(ReplyReader(), sent, cuts)

    @given(
        st.sampled_from(HEADS),
        st.lists(
            st.tuples(
                st.text(" abc;=\r\n\0", max_size=8),
                st.sampled_from(["", "1", "close"]),
                st.sampled_from([b"ok", b"ok", b"o", b"ok?"]),
            ),
            min_size=2,
            max_size=5,
        ),
        st.booleans(),
        st.booleans(),
    )
    def test_a_whole_answer_is_what_its_pieces_are(
        self, head: str, answers: list[tuple[str, str, bytes]], streamed: bool, bodiless: bool
    ) -> None:
        """Or nothing of it is read."""
        reader = ReplyReader()
        for first, second, body in answers:
            data, fresh = head.format(first, second).encode() + body, ReplyReader()
            if reader.state is not ReplyState.IDLE:
                reader = ReplyReader()
            for each in (reader, fresh):
                each.begin(streamed=streamed, bodiless=bodiless)
            reply = reader.read_whole(data)
            errors = []
            for each in (fresh,) if reply is not None else (reader, fresh):
                try:
                    each.receive(data)
                    errors.append("")
                except HeadersError as error:
                    errors.append(str(error))
            headers = fresh.headers
            if reply is not None:
                assert (errors, fresh.complete, streamed, bodiless) == ([""], True, False, False)
                assert (reply.status, dict(reply.headers)) == (headers.status, dict(headers.headers))
                assert (reply.body, reader.state) == (fresh.body, fresh.state)
            elif not errors[0] and not errors[1]:
                found = reader.headers
                assert (found.status, dict(found.headers)) == (headers.status, dict(headers.headers))
                assert (found.keep_alive, found.length) == (headers.keep_alive, headers.length)
                assert (reader.body, reader.state) == (fresh.body, fresh.state)
            else:
                assert errors[0] == errors[1]

    @pytest.mark.parametrize("values", [(1, 1), (1, 2)])
    def test_a_small_answer_that_repeats_another_is_whole(self, values: tuple[int, int]) -> None:
        head = b"HTTP/1.1 200 OK\r\nDate: %d\r\nContent-Length: 2\r\n\r\n%d!"
        reader = ReplyReader()
        for value in (0, *values):
            read(reader, head % (value, value), [])
        for value in values:
            reader.begin()
            reply = reader.read_whole(head % (value, value))
            assert reply is not None
            assert (reply.body, reply.headers["date"]) == (b"%d!" % value, str(value))
            assert reader.state is ReplyState.IDLE

    @pytest.mark.parametrize(
        ("cut", "before"), [(slice(0, -1), b""), (slice(None), b"HTTP/1.1 2"), (slice(1, None), b"H")]
    )
    def test_a_part_of_an_answer_is_not_whole(self, cut: slice, before: bytes) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        reader = ReplyReader()
        read(reader, answer, [])
        reader.begin()
        if before:
            reader.receive(before)
        assert reader.read_whole(answer[cut]) is None

    def test_input_without_a_request_is_no_answer(self) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        reader = ReplyReader()
        read(reader, answer, [])
        assert reader.state is ReplyState.IDLE
        assert reader.read_whole(answer) is None

    def test_a_header_that_has_changed_is_read_without_a_parse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        head = b"HTTP/1.1 200 OK\r\nNV-Status: id %d\r\nContent-Length: 2\r\n\r\nok"
        reader = ReplyReader()
        for number in range(2):
            read(reader, head % number, [])
        monkeypatch.setattr(reply_reader, "parse_reply_headers", None)
        for number in range(2, 5):
            assert read(reader, head % number, []) == b"ok"
            assert reader.headers.headers["nv-status"] == f"id {number}"

    def test_no_length_is_taken_from_an_earlier_answer(self) -> None:
        reader = ReplyReader()
        for number in range(12):
            body = b"x" * number
            head = b"HTTP/1.1 200 OK\r\nX-Id: %d\r\nContent-Length: %d\r\n\r\n" % (number, number)
            assert read(reader, head + body, []) == body

    def test_headers_of_an_earlier_answer_do_not_change(self) -> None:
        reader, found = ReplyReader(), []
        for date in (b"one", b"two", b"three"):
            read(reader, b"HTTP/1.1 204 No Content\r\nDate: %s\r\nA: b\r\n\r\n" % date, [])
            found.append(reader.headers.headers)
        assert found == [{"date": date, "a": "b"} for date in ("one", "two", "three")]
