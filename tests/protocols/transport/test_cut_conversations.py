"""What servers say, cut anywhere: every client reads the same answer from it, on either engine."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import time
import zlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from tests.misbehaving import MISBEHAVING
from tests.misbehaving.framed import framed
from tests.misbehaving.http1 import CHUNKED, OK, sized
from tests.misbehaving.http2 import data, goaway, packed
from tests.misbehaving.server import Behaviour, Data, Outcome, Server, data_of
from tests.protocols.transport.grpc.scripted import answer, headers, trailers
from tests.protocols.transport.h2.peer import END_HEADERS, HEADERS, PING, block, frame, message, window_update
from tests.protocols.transport.h2.peer import settings as h2_settings
from tests.protocols.transport.test_misbehaving_upstreams import outcome_of, request
from tests.standins.brpc_server import answer_frame

BODY = bytes(range(256)) * 3
REFUSED = trailers(1, (":status", "200"), ("grpc-status", "7"), ("grpc-message", "no"))

CONVERSATIONS: dict[tuple[str, str], tuple[Data, tuple[Outcome, bytes]]] = {
    ("http", "length"): (OK + b"Content-Length: 768\r\n\r\n" + BODY, (None, BODY)),
    ("http", "chunks"): (
        CHUNKED + b"100;a=b\r\n%b\r\n200\r\n%b\r\n0\r\nA: b\r\n\r\n" % (BODY[:256], BODY[256:]),
        (None, BODY),
    ),
    ("http", "small chunks"): (CHUNKED + b"1\r\nx\r\n" * 100 + b"0\r\n\r\n", (None, b"x" * 100)),
    ("http", "gzip"): (sized("gzip", gzip.compress(BODY, mtime=0)), (None, BODY)),
    ("http", "interim answers"): (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\nno",
        (409, b"no"),
    ),
    ("grpc", "answer"): (answer(1, BODY), (None, BODY)),
    ("grpc", "other frames between"): (
        h2_settings((4, 100_000))
        + headers(1)
        + frame(PING, 0, 0, bytes(8))
        + data(message(BODY)[:300])
        + window_update(1, 5)
        + frame(0x77, 0, 0, bytes(30))
        + data(message(BODY)[300:])
        + goaway(1)
        + trailers(1),
        (None, BODY),
    ),
    ("grpc", "interim answer"): (
        frame(HEADERS, END_HEADERS, 1, block([(":status", "103")])) + answer(1, BODY),
        (None, BODY),
    ),
    ("grpc", "gzip"): (packed("gzip", gzip.compress(BODY, mtime=0)) + trailers(1), (None, BODY)),
    ("grpc", "status"): (REFUSED, (7, b"")),
    ("brpc", "reply"): (lambda each: answer_frame(each, BODY), (None, BODY)),
    ("brpc", "other replies first"): (
        lambda each: answer_frame(each + 7, b"late") + answer_frame(each, BODY),
        (None, BODY),
    ),
    ("brpc", "zlib"): (lambda each: answer_frame(each, zlib.compress(BODY), compress_type=3), (None, BODY)),
    ("tcp", "message"): (framed(BODY), (None, BODY)),
    ("tcp", "empty message"): (struct.pack("<I", 0), (None, b"")),
}
NATIVE_ALONE = {("grpc", "interim answer")}
"""grpcio takes an interim answer for the answer."""

CASES = [
    (*case, engine)
    for case in CONVERSATIONS
    for engine in ("native", "library")
    if (case[0], engine) in CLIENTS and (engine == "native" or case not in NATIVE_ALONE)
]


def cut(said: Data, places: list[float]) -> Behaviour:
    """Sends ``said`` in pieces that end at these fractions of it."""

    def behave(sock: socket.socket, request: int) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        whole = data_of(said, request)
        ends = [0, *sorted(int(each * len(whole)) for each in places), len(whole)]
        for begin, end in pairwise(ends):
            sock.sendall(whole[begin:end])
            time.sleep(0.001)
        while sock.recv(1 << 16):
            pass

    return behave


async def converse(transport: str, engine: str, behaviour: Behaviour) -> tuple[Outcome, bytes]:
    server = Server(MISBEHAVING[transport][0], behaviour)
    client: Any = CLIENTS[transport, engine](parse_url(server.url, transport))
    try:
        return await outcome_of(client, request(transport, seconds=30))
    finally:
        await client.close()
        await asyncio.to_thread(server.close)


@pytest.mark.parametrize(("transport", "name", "engine"), CASES)
@settings(max_examples=12, deadline=None)
@given(places=st.lists(st.floats(0, 1), max_size=8))
def test_answers_are_the_same(transport: str, name: str, engine: str, places: list[float]) -> None:
    said, expected = CONVERSATIONS[transport, name]
    assert asyncio.run(converse(transport, engine, cut(said, places))) == expected
