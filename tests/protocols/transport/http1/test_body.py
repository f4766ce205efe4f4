"""Bodies of HTTP/1 requests: cut anyhow, they come out as they went in."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.allowance import Allowance
from interlingua.protocols.transport.http1 import body as http1_body
from interlingua.protocols.transport.http1.body import (
    SMALL_CHUNK_BYTES,
    SMALL_CHUNKS,
    BodyError,
    ChunkedBody,
    SizedBody,
    SmallChunksError,
    body_in,
)
from interlingua.protocols.transport.http1.reader import RequestReader
from interlingua.protocols.transport.turns import TURN_CHUNKS

BEHIND = b"GET /next"


def cut(data: bytes, where: list[int]) -> list[bytes]:
    """``data`` in pieces."""
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in where)})
    return [data[a:b] for a, b in pairwise(places)]


def fed(body: SizedBody | ChunkedBody, pieces: list[bytes]) -> bytes:
    """What ``body`` leaves of ``pieces``, once it has taken its own."""
    left = b""
    for piece in pieces:
        if body.complete:
            left += piece
        else:
            taken = body.feed(b"..." + piece, 3) - 3
            while not body.complete and taken < len(piece):  # in as many turns as it takes
                taken = body.feed(piece, taken)
            left += piece[taken:]
            assert body.complete or taken == len(piece)
    return left


@given(st.binary(), st.lists(st.integers(0, 1 << 20)))
def test_a_length_is_kept_to(payload: bytes, where: list[int]) -> None:
    body = SizedBody(len(payload))
    assert fed(body, cut(payload + BEHIND, where) if payload else [b"", BEHIND]) == BEHIND
    assert (body.whole(), body.size) == (payload, len(payload))


@given(
    st.lists(st.binary(min_size=1, max_size=40)),
    st.sampled_from([b"", b";a=b", b' ; a="b;c"', b";a=b;c"]),
    st.lists(st.sampled_from([b"A: b", b"Content-Length: 3", b"x" * 100 + b":"])),
    st.lists(st.integers(0, 1 << 20)),
)
def test_chunks(payload: list[bytes], extension: bytes, trailer: list[bytes], where: list[int]) -> None:
    wire = b"".join(b"%X%b\r\n%b\r\n" % (len(each), extension, each) for each in payload)
    wire += b"000" + extension + b"\r\n" + b"".join(line + b"\r\n" for line in trailer) + b"\r\n"
    body = ChunkedBody()
    assert fed(body, cut(wire + BEHIND, where)) == BEHIND
    assert body.whole() == b"".join(payload)
    assert body.size == len(b"".join(payload))


def test_the_size_of_a_chunk_counts_before_its_bytes_arrive() -> None:
    body = ChunkedBody()
    body.feed(b"2\r\nab\r\n64\r\nc", 0)
    assert (body.size, body.least_size) == (3, 102)
    body.feed(b"c" * 99 + b"\r", 0)
    assert (body.size, body.least_size) == (102, 102)


def test_a_body_in_one_piece_is_not_copied() -> None:
    body, piece = SizedBody(200_000), bytes(200_000)
    body.feed(piece, 0)
    assert body.whole() is piece


def test_a_body_is_read_only() -> None:
    body = SizedBody(4)
    for piece in (b"ab", b"cd"):
        body.feed(piece, 0)
    assert memoryview(body.whole()).readonly


def test_room_is_made_as_a_body_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_body, "_RESERVED_BYTES", 16)
    body, payload, most = SizedBody(1 << 50), bytes(range(200)), 0
    for at in range(0, 200, 10):
        body.feed(payload[at : at + 10], 0)
        most = max(most, len(body._buffer))
    assert most < 500
    assert bytes(body._buffer[: body.size]) == payload


def test_large_chunks_are_joined_once() -> None:
    body, large = ChunkedBody(), bytes(200_000)
    body.feed(b"%x\r\n" % len(large), 0)
    body.feed(large, 0)
    assert body._pieces._parts[0] is large


@pytest.mark.parametrize(
    "wire",
    [
        b"zz\r\n",
        b"\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b" 1\r\n",
        b"1\n",
        b"1 2\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n",
        b"1\r\na\rb",
        b"2\r\na\r\n0\r\n\r\n",
        b"f" * 16 + b"\r\n",
        b"1;\x00\r\n",
        b"1;a\rb\r\n",
        b"1;" + b"a" * 5000,
        b"0\r\n" + b"A: b\r\n" * 20_000,
        b"0\r\n" + b"a" * 70_000,
        b"0\r\nA: b\n\r\n",
        b"0\r\nA\r\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\nA: b\r\n c\r\n\r\n",
        b"0\r\n: b\r\n\r\n",
        b"0\r\nA: \x00\r\n\r\n",
    ],
    ids=lambda wire: repr(wire[:20]),
)
def test_what_is_not_in_chunks(wire: bytes) -> None:
    for pieces in ([wire], [wire[place : place + 1] for place in range(len(wire))]):
        body = ChunkedBody()
        with pytest.raises(BodyError):  # noqa: PT012
            for piece in pieces:
                at = 0
                while at < len(piece):  # in as many turns as it takes
                    at = body.feed(piece, at)


@given(st.binary(max_size=100))
def test_only_one_error_comes_out(noise: bytes) -> None:
    body = ChunkedBody()
    with suppress(BodyError):
        body.feed(noise, 0)


def test_a_large_body_in_one_piece_is_not_copied() -> None:
    data = b"head" + bytes(range(256)) * 256 + b"next"
    body = body_in(data, 4, 1 << 16)
    assert (isinstance(body, memoryview), body == data[4:-4], memoryview(body).readonly) == (True, True, True)
    assert body_in(data, 4, 16) == data[4:20]
    assert isinstance(body_in(bytearray(data), 4, 1 << 16), bytes)


class TestSmallChunks:
    def test_so_many_are_read_at_once(self) -> None:
        wire, turns = b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n", []
        body, at = ChunkedBody(), 0
        while not body.complete:
            before = body.size
            at = body.feed(wire, at)
            turns.append(body.size - before)
        assert max(turns) == TURN_CHUNKS
        assert body.whole() == b"x" * 1000

    @pytest.mark.parametrize("extension", [b"", b";a"])
    def test_so_many_are_read_over_time(self, extension: bytes) -> None:
        clock = [0.0]
        body = ChunkedBody(Allowance(1000, 100, lambda: clock[0]))
        chunk = b"1%b\r\nx\r\n" % extension
        for _ in range(1000):
            body.feed(chunk, 0)
        clock[0] = 10.0
        for _ in range(1000):
            body.feed(chunk, 0)
        with pytest.raises(SmallChunksError):
            body.feed(chunk, 0)

    def test_others_are_not_counted(self) -> None:
        body = ChunkedBody(Allowance(1, 0, lambda: 0.0))
        chunk = b"%x\r\n%b\r\n" % (SMALL_CHUNK_BYTES, bytes(SMALL_CHUNK_BYTES))
        for _ in range(100):
            body.feed(chunk, 0)
        assert body.size == 100 * SMALL_CHUNK_BYTES

    def test_all_bodies_of_a_connection_count(self) -> None:
        reader = RequestReader()
        body = b"1\r\nx\r\n" * 100 + b"0\r\n\r\n"
        with pytest.raises(SmallChunksError):  # noqa: PT012
            for _ in range(SMALL_CHUNKS // 100 + 1000):
                reader.read_headers(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                reader.read_body(body)
                reader.answered()
