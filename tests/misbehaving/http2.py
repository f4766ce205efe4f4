"""HTTP/2 servers of gRPC that misbehave. The first stream of a connection is 1."""

from __future__ import annotations

import gzip
import socket
import struct
import zlib

from tests.misbehaving.server import (
    BAD,
    DOWN,
    LARGE,
    LATE,
    LIMIT,
    Misbehaviour,
    deaf,
    dripping,
    endless,
    received,
    sending,
)
from tests.protocols.transport.grpc.scripted import answer, headers, trailers
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
    block,
    frame,
    message,
    settings,
    window_update,
)

PREFACE_BYTES = 24
BIG = block([("x", "y" * 60_000)])


class Http2Session:
    """Unary calls; windows are large enough without updates."""

    greeting = settings()

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._begun = False

    def request(self) -> int:
        if not self._begun:
            received(self._sock, PREFACE_BYTES)
            self._begun = True
        while True:
            header = received(self._sock, 9)
            received(self._sock, int.from_bytes(header[:3], "big"))
            if header[3] in (DATA, HEADERS) and header[4] & END_STREAM:
                return int.from_bytes(header[5:], "big")

    def good(self, request: int) -> bytes:
        return answer(request, b"well")


def goaway(last: int, code: int = 0, why: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">LL", last, code) + why)


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">L", code))


def data(content: bytes, flags: int = 0) -> bytes:
    return frame(DATA, flags, 1, content)


def packed(coding: str, content: bytes) -> bytes:
    """The beginning of an answer with a compressed message."""
    return headers(1, ("grpc-encoding", coding)) + data(message(content, 1))


INTERNAL_ERROR, REFUSED_STREAM = 2, 7
"""Codes of RST_STREAM."""

UNKNOWN, INTERNAL = 2, 13
"""gRPC statuses, as grpcio has them for such answers."""

HTTP2: dict[str, Misbehaviour] = {
    # no answer, or part of one
    "silence": (sending(), {LATE}),
    "never reads": (deaf, {LATE}),
    "close": (sending(then=""), {DOWN}),
    "half-close": (sending(then="half-close"), {DOWN}),
    "reset": (sending(then="reset"), {DOWN}),
    "half an answer": (sending(answer(1)[:-5]), {LATE}),
    "half an answer, close": (sending(answer(1)[:-5], then=""), {DOWN}),
    "half an answer, half-close": (sending(answer(1)[:-5], then="half-close"), {DOWN}),
    "half an answer, reset": (sending(answer(1)[:-5], then="reset"), {DOWN}),
    "an answer that drips": (dripping(answer(1, bytes(1000))), {LATE}),
    "a message in frames of one byte": (
        endless(data(b"x"), headers(1) + data(struct.pack(">BL", 0, LIMIT)), 0.02),
        {LATE},
    ),
    # floods
    "endless pings": (endless(frame(PING, 0, 0, bytes(8)) * 50), {BAD}),
    "endless ping answers": (endless(frame(PING, ACK, 0, bytes(8)) * 50), {BAD}),
    "endless settings": (endless(settings((4, 70_000)) * 50), {BAD}),
    "endless settings answers": (endless(frame(SETTINGS, ACK, 0) * 50), {BAD}),
    "endless changes of windows": (endless((settings((4, 70_000)) + settings((4, 10))) * 50), {BAD}),
    "endless changes of tables": (endless((settings((1, 0)) + settings((1, 4096))) * 50), {BAD}),
    "endless goaways": (endless(goaway(1) * 50), {BAD}),
    "endless resets": (endless(reset(1, INTERNAL_ERROR) * 50), {INTERNAL}),
    "endless refusals": (endless(reset(1, REFUSED_STREAM) * 50), {BAD}),
    "endless priorities": (endless(frame(PRIORITY, 0, 1, bytes(5)) * 50), {BAD}),
    "endless unknown frames": (endless(frame(0x77, 0, 0, bytes(100)) * 50), {BAD}),
    "endless empty data": (endless(data(b"") * 50), {INTERNAL}),
    "endless padding": (endless(data(b"\xff" + bytes(255), PADDED) * 50), {INTERNAL}),
    "endless window updates": (endless(window_update(0, 1) * 50), {BAD}),
    "endless window updates of a stream": (endless(window_update(1, 1) * 50), {BAD}),
    "endless interim answers": (
        endless(frame(HEADERS, END_HEADERS, 1, block([(":status", "100")])) * 50),
        {BAD},
    ),
    "endless headers": (endless(headers(1) * 50), {INTERNAL}),
    "endless continuations": (endless(frame(CONTINUATION, 0, 1, bytes(16_000)), frame(HEADERS, 0, 1)), {BAD}),
    "endless empty continuations": (endless(frame(CONTINUATION, 0, 1) * 50, frame(HEADERS, 0, 1)), {BAD}),
    "endless empty messages": (endless(data(message(b"") * 100), headers(1)), {INTERNAL}),
    "endless answers": (endless(answer(1) * 50), {None, BAD}),
    # header blocks
    "a flood of headers": (sending(frame(HEADERS, 0, 1, BIG), *[frame(CONTINUATION, 0, 1, BIG)] * 8), {BAD}),
    "a flood of trailers": (
        sending(headers(1) + frame(HEADERS, END_STREAM, 1, BIG), *[frame(CONTINUATION, 0, 1, BIG)] * 8),
        {BAD},
    ),
    "a header bomb": (
        sending(frame(HEADERS, END_HEADERS, 1, b"\x40\x01x\x7f\x81\x1e" + b"y" * 4000 + b"\xbe" * 16_000)),
        {BAD},
    ),
    "an integer without end": (sending(frame(HEADERS, END_HEADERS, 1, b"\xff" * 1000)), {BAD}),
    "unreadable Huffman": (sending(frame(HEADERS, END_HEADERS, 1, b"\x40\x84" + b"\xff" * 4)), {BAD}),
    "an index that is not in the table": (sending(frame(HEADERS, END_HEADERS, 1, b"\xfe")), {BAD}),
    "a table above the limit": (sending(frame(HEADERS, END_HEADERS, 1, b"\x3f\xff\xff\x03")), {BAD}),
    "headers that are interrupted": (
        sending(frame(HEADERS, 0, 1, BIG[:100]), frame(PING, 0, 0, bytes(8))),
        {BAD},
    ),
    # sizes
    "a claim of 2 GiB": (sending(headers(1), data(struct.pack(">BL", 0, 2**31 - 1) + bytes(1000))), {LARGE}),
    "a claim of 4 GiB": (sending(headers(1), data(struct.pack(">BL", 0, 2**32 - 1) + bytes(1000))), {LARGE}),
    "an endless message": (
        endless(data(bytes(16_000)), headers(1) + data(struct.pack(">BL", 0, 2**32 - 1))),
        {LARGE},
    ),
    "a frame of 16 MiB": (sending(headers(1), b"\xff\xff\xff\0\0\0\0\0\1"), {BAD}),
    "a window that overflows": (sending(window_update(0, 2**31 - 1)), {BAD}),
    "a window of a stream that overflows": (sending(window_update(1, 2**31 - 1)), {INTERNAL}),
    "a window update of zero": (sending(window_update(0, 0)), {BAD}),
    "a window of 4 GiB": (sending(settings((4, 2**32 - 1))), {BAD}),
    "padding above its frame": (sending(headers(1), data(b"\xff", PADDED)), {BAD}),
    "settings of a stream": (sending(frame(SETTINGS, 0, 1)), {BAD}),
    "settings cut short": (sending(frame(SETTINGS, 0, 0, bytes(5))), {BAD}),
    "a gzip bomb": (sending(packed("gzip", gzip.compress(bytes(64 * LIMIT), 1)) + trailers(1)), {LARGE}),
    "a deflate bomb": (
        sending(packed("deflate", zlib.compress(bytes(64 * LIMIT), 1)) + trailers(1)),
        {LARGE},
    ),
    "no gzip": (sending(packed("gzip", b"x") + trailers(1)), {INTERNAL}),
    # streams that were not opened
    "an answer of another stream": (sending(answer(99)), {BAD}),
    "data of another stream": (sending(frame(DATA, 0, 7, b"x")), {BAD}),
    "a reset of another stream": (sending(reset(7, 0)), {BAD}),
    "an even stream": (sending(answer(2)), {BAD}),
    "stream zero": (sending(answer(0)), {BAD}),
    "a push": (sending(frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + BIG[:100])), {BAD}),
    # gRPC
    "no status": (sending(headers(1), data(message(b"x")), trailers(1, ("a", "b"))), {UNKNOWN}),
    "a status that is no number": (sending(trailers(1, (":status", "200"), ("grpc-status", "x"))), {UNKNOWN}),
    "two messages": (sending(headers(1), data(message(b"x") * 2), trailers(1)), {INTERNAL}),
    "half a message": (sending(headers(1), data(message(b"xy")[:-1]), trailers(1)), {INTERNAL}),
    "data before headers": (sending(data(message(b"x"))), {INTERNAL}),
    # other protocols
    "HTTP/1": (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50), {BAD}),
    "garbage": (sending(bytes(range(256)) * 64), {BAD}),
}
