"""A connection without a socket: whatever pieces its bytes come in, the answers are the same."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interlingua.protocols.transport.http.connection import HttpConnection
from interlingua.protocols.transport.http.engine import Settings
from interlingua.protocols.transport.listener import ConnectionSet
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from tests.protocols.transport.peers import HttpEcho, post
from tests.waiting import until


class Wire(asyncio.Transport):
    """Keeps what is written. A client takes it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self._socket = socket.socket()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else default

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write_eof(self) -> None:
        self.close()

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def abort(self) -> None:
        self.close()


class Late(HttpEcho):
    """Some of its answers take a turn of the loop, some take none."""

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        for _ in range(len(request.body) % 3):
            await asyncio.sleep(0)
        return await super().serve(request)


async def converse(
    pieces: list[bytes], rests: list[int], busy: bool = False
) -> tuple[bytes, list[HttpRequest], bool]:
    """What is written in answer to ``pieces``, between which the loop has as many turns as ``rests`` says.
    ``busy``: another connection has a request in flight."""
    handler = Late(max_body_bytes=1000)
    connections: ConnectionSet[HttpConnection] = ConnectionSet()
    others = {object()} if busy else set()
    connections.in_flight |= others
    limits = Settings(handler, half_closed_secs=60, linger_secs=0)
    connection, wire = HttpConnection(limits, connections), Wire()
    connection.connection_made(wire)
    for place, piece in enumerate(pieces):
        await until(lambda: wire.reading or wire.closed, pace_secs=0)
        if wire.closed:
            break
        connection.data_received(piece)
        for _ in range(rests[place % len(rests)]):
            await asyncio.sleep(0)
    await until(lambda: connections.in_flight == others, pace_secs=0)
    await asyncio.sleep(0)  # the end of the turn
    closed = wire.closed
    wire.close()
    connection.connection_lost(None)
    return bytes(wire.written), handler.heads, closed


def chunked(path: str, body: bytes) -> bytes:
    lines = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    middle = len(body) // 2
    chunks = [each for each in (body[:middle], body[middle:]) if each]
    return lines + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"


_BODIES = st.binary(max_size=60) | st.sampled_from([b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"0\r\n\r\n"])
_REQUESTS = (
    st.builds(post, st.sampled_from(["/", "/a", "/refused"]), _BODIES)
    | st.builds(chunked, st.sampled_from(["/", "/refused"]), _BODIES)
    | st.sampled_from(
        [
            b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\r\n\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
            post("/", b"k", "Connection: keep-alive", version="1.0"),
            post("/", b"x", "Expect: nothing"),
        ]
    )
)
_ENDS = st.sampled_from(
    [b"", b"NOT HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"]
)


@settings(max_examples=300)
@example([b"\r\n\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\n"], b"NOT HTTP\r\n\r\n", [35, 388], [1], False)
@example([post("/", b"ab"), post("/", b"expected", "Expect: 100-continue")], b"", [100], [9], True)
@given(
    st.lists(_REQUESTS, min_size=1, max_size=6),
    _ENDS,
    st.lists(st.integers(0, 1 << 16), max_size=12),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.booleans(),
)
def test_any_pieces(
    requests: list[bytes], end: bytes, where: list[int], rests: list[int], busy: bool
) -> None:
    stream = b"".join(requests) + end
    places = sorted({0, len(stream), *(place % len(stream) for place in where)})
    pieces = [stream[a:b] for a, b in pairwise(places)]

    async def both() -> None:
        each = [await converse([request], [1]) for request in [*requests, end] if request]
        written, heads, closed = await converse(pieces, rests, busy)
        # an early answer to half a request ends the connection: what follows cannot be told from its body
        early = written.endswith(b"connection: close\r\n\r\nno such path")
        expected = b"".join(answers for answers, _, _ in each)
        if early:
            assert closed
            assert expected.startswith(written.replace(b"connection: close\r\n", b""))
        else:
            assert written == expected
            asked = [head for _, heads, _ in each for head in heads]
            assert [(head.method, head.path, head.body) for head in heads] == [
                (head.method, head.path, head.body) for head in asked
            ]
            assert closed is bool(end)

    asyncio.run(both())


@pytest.mark.parametrize("pieces", [1, 7, 4096])
def test_a_large_body_in_any_pieces(pieces: int) -> None:
    body = bytes(range(256)) * 3

    async def converse_once() -> None:
        stream = post("/", body) + post("/", b"next")
        written, _, _ = await converse(
            [stream[at : at + pieces] for at in range(0, len(stream), pieces)], [0]
        )
        assert written.count(b"HTTP/1.1 200 OK") == 2
        assert body in written
        assert written.endswith(b"next")

    asyncio.run(converse_once())


END = Callable[[HttpConnection, Wire], None]


def _interim(connection: HttpConnection, wire: Wire) -> None:
    connection.data_received(
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("happens", "follows"),
    [
        (lambda connection, wire: connection.drain(), b""),
        (lambda connection, wire: connection.cut(), b""),
        (lambda connection, wire: connection.eof_received(), b""),
        (lambda connection, wire: connection.data_received(b"NOT HTTP\r\n\r\n"), b"HTTP/1.1 501 "),
        (_interim, b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["drained", "cut", "half closed", "malformed", "continued"],
)
async def test_an_answer_that_is_held_back_precedes_what_follows(happens: END, follows: bytes) -> None:
    connections: ConnectionSet[HttpConnection] = ConnectionSet()
    connections.in_flight.add(object())
    connection, wire = HttpConnection(Settings(HttpEcho(), linger_secs=0), connections), Wire()
    connection.connection_made(wire)
    connection.data_received(post("/", b"held"))
    while connection in connections.in_flight:
        assert not wire.written
        await asyncio.sleep(0)
    assert connection.unsent
    assert not wire.written
    happens(connection, wire)
    answer, body, rest = bytes(wire.written).partition(b"held")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body
    assert rest.startswith(follows)
    assert not connection.unsent
    wire.close()
    connection.connection_lost(None)
    await asyncio.sleep(0)
