"""The reading side of an HTTP/1 connection: its states, and nothing read out of turn."""

from __future__ import annotations

import pytest

from interlingua.protocols.transport.http1.body import BodyError
from interlingua.protocols.transport.http1.headers import HeadersError
from interlingua.protocols.transport.http1.reader import TRANSITIONS, ReadEvent, ReadState, RequestReader
from tests.protocols.transport.peers import post

CHUNKED = b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def paths(reader: RequestReader, data: bytes) -> list[tuple[str, bytes]]:
    """The requests in ``data``, each answered before the next is read."""
    found = []
    reader.receive(data)
    while (headers := reader.read_headers()) is not None:
        if reader.state is ReadState.BODY:
            reader.read_body()
        found.append((headers.path, bytes(reader.body)))
        if not reader.answered():
            break
    return found


class TestStates:
    def test_every_state_can_be_closed_and_is_reached(self) -> None:
        assert set(TRANSITIONS) == set(ReadState)
        assert all(row[ReadEvent.CLOSE] is ReadState.CLOSED for row in TRANSITIONS.values())
        assert {state for row in TRANSITIONS.values() for state in row.values()} == set(ReadState)

    def test_a_closed_connection_stays_closed(self) -> None:
        assert set(TRANSITIONS[ReadState.CLOSED].values()) == {ReadState.CLOSED}
        assert ReadState.IDLE not in TRANSITIONS[ReadState.UNREAD].values()

    def test_an_event_out_of_turn_is_an_error(self) -> None:
        with pytest.raises(KeyError):
            RequestReader().answered()

    def test_a_request_that_is_complete_at_once(self) -> None:
        reader = RequestReader()
        assert reader.read_headers(post("/a", b"body")) is not None
        assert reader.state is ReadState.ANSWERING and reader.body == b"body"
        assert not reader.answered()
        assert reader.state is ReadState.IDLE and not reader.pending

    def test_a_body_that_arrives_later(self) -> None:
        reader = RequestReader()
        whole = post("/a", b"body")
        assert reader.read_headers(whole[:-3]) is not None
        assert reader.state is ReadState.BODY
        assert reader.read_body() == 4 and reader.state is ReadState.BODY
        assert reader.read_body(whole[-3:]) == 4
        assert reader.state is ReadState.ANSWERING and reader.body == b"body"

    def test_a_refused_request_is_read_no_further(self) -> None:
        reader = RequestReader()
        reader.read_headers(post("/a", b"body")[:-1] + b"")
        reader.refuse()
        assert reader.state is ReadState.UNREAD and not reader.pending
        with pytest.raises(KeyError):
            reader.answered()
        reader.close()
        assert reader.state is ReadState.CLOSED


class TestInput:
    def test_requests_are_read_one_at_a_time(self) -> None:
        reader = RequestReader()
        two = post("/a", b"1") + post("/b", b"22")
        assert reader.read_headers(two) is not None
        assert reader.state is ReadState.ANSWERING and reader.body == b"1" and reader.pending
        assert reader.answered()
        assert paths(reader, b"") == [("/b", b"22")]

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
    def test_any_pieces(self, size: int) -> None:
        stream = (
            post("/a", b"one") + b"\r\n\r\n" + CHUNKED + b"3\r\ntwo\r\n0\r\n\r\n" + post("/a", b"one") * 2
        )
        reader, found = RequestReader(), []
        for at in range(0, len(stream), size):
            piece = stream[at : at + size]
            if reader.state is ReadState.IDLE:
                reader.read_headers(piece)
            else:
                reader.read_body(piece)
            while True:
                if reader.state is ReadState.BODY:
                    reader.read_body()
                if reader.state is not ReadState.ANSWERING:
                    break
                found.append((reader.headers.path, bytes(reader.body)))
                if reader.answered():
                    reader.read_headers()
        assert found == [("/a", b"one"), ("/c", b"two"), ("/a", b"one"), ("/a", b"one")]

    def test_what_is_malformed(self) -> None:
        with pytest.raises(HeadersError):
            RequestReader().read_headers(b"NOT HTTP\r\n")
        reader = RequestReader()
        reader.read_headers(CHUNKED)
        with pytest.raises(BodyError):
            reader.read_body(b"x\r\n")

    def test_equal_headers_are_parsed_once(self) -> None:
        reader = RequestReader()
        first = reader.read_headers(post("/a", b"1"))
        reader.answered()
        assert reader.read_headers(post("/a", b"2")) is first and reader.body == b"2"

    def test_a_small_request_that_repeats_another_is_read_whole(self) -> None:
        reader = RequestReader()
        first = reader.read_headers(post("/a", b"1"))
        reader.answered()
        for body in (b"2", b"3"):
            assert reader.read_whole(post("/a", body)) == reader.body == body
            assert reader.state is ReadState.ANSWERING and reader.headers is first
            assert not reader.answered()

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            post("/b", b"2"),
            post("/a", b"22"),
            post("/a", b"2")[:-1],
            post("/a", b"2") + b"\r",
            b"\r\n" + post("/a", b"2")[:-2],
        ],
    )
    @pytest.mark.parametrize("before", [b"", b"PO", post("/a", b"2")[:-1]])
    def test_what_is_not_whole_is_not_read(self, data: bytes, before: bytes) -> None:
        def after(*reads: bytes) -> RequestReader:
            reader = RequestReader()
            reader.read_headers(post("/a", b"1"))
            reader.answered()
            for each in reads:
                if reader.state is ReadState.IDLE:
                    reader.read_headers(each)
            return reader

        reader, other = after(before), after(before)
        if reader.state is ReadState.IDLE:
            assert reader.read_whole(data) is None
            for each in (reader, other):
                try:
                    each.read_headers(data)
                except HeadersError:
                    return
            assert (reader.state, reader.headers, reader.body) == (other.state, other.headers, other.body)

    def test_long_requests_are_not_read_whole(self) -> None:
        reader = RequestReader()
        for request in (post("/a", bytes(20_000)), post("/a", b"1", f"X: {'y' * 5000}"), CHUNKED):
            assert reader.read_headers(request) is not None
            if reader.state is ReadState.BODY:
                reader.read_body(b"0\r\n\r\n")
            reader.answered()
            assert reader.read_whole(request) is None

    def test_long_headers_are_not_kept(self) -> None:
        reader = RequestReader()
        long = post("/a", b"1", f"X: {'y' * 5000}")
        first = reader.read_headers(long)
        reader.answered()
        assert not reader.headers.raw
        again = reader.read_headers(long)
        assert again is not first and again == first


class TestBodiesReceivedInPlace:
    @pytest.mark.parametrize("here", [0, 1, 70_000])
    def test_a_body_with_a_length(self, here: int) -> None:
        body = bytes(range(256)) * 400
        reader = RequestReader()
        reader.read_headers(post("/a", body)[: len(post("/a", body)) - len(body) + here])
        reader.read_body()
        while reader.state is ReadState.BODY:
            begin, buffer = len(body) - reader.missing, reader.body_buffer()
            piece = body[begin : begin + 30_000]
            buffer[: len(piece)] = piece
            reader.body_filled(len(piece))
        assert reader.body == body and not reader.answered()

    def test_a_chunked_one_has_no_missing_bytes(self) -> None:
        reader = RequestReader()
        reader.read_headers(CHUNKED)
        assert reader.state is ReadState.BODY and reader.missing == 0
