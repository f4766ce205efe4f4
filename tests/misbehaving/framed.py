"""Servers of frames with a size before each (GraphPipe over TCP) that misbehave."""

from __future__ import annotations

import socket
import struct

from tests.misbehaving.server import (
    BAD,
    DOWN,
    LARGE,
    LATE,
    Misbehaviour,
    deaf,
    dripping,
    endless,
    received,
    sending,
)


class FramedSession:
    """A little-endian size, then the message."""

    greeting = b""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def request(self) -> int:
        (size,) = struct.unpack("<I", received(self._sock, 4))
        received(self._sock, size)
        return 0

    def good(self, request: int) -> bytes:
        return b"\4\0\0\0well"


def framed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


HALF = framed(bytes(100))[:-50]

FRAMED: dict[str, Misbehaviour] = {
    "garbage": (sending(b"\xff" * 1000), {LARGE}),
    "HTTP": (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {BAD}),
    "half a size": (sending(b"\1\0"), {LATE}),
    "half a message": (sending(HALF), {LATE}),
    "half a message, close": (sending(HALF, then=""), {DOWN}),
    "half a message, half-close": (sending(HALF, then="half-close"), {DOWN}),
    "half a message, reset": (sending(HALF, then="reset"), {DOWN}),
    "close": (sending(then=""), {DOWN}),
    "half-close": (sending(then="half-close"), {DOWN}),
    "reset": (sending(then="reset"), {DOWN}),
    "silence": (sending(), {LATE}),
    "never reads": (deaf, {LATE}),
    "a claim of 2 GiB": (sending(struct.pack("<I", 2**31), bytes(1 << 16)), {LARGE}),
    "a negative size": (sending(struct.pack("<i", -1)), {LARGE}),
    "an endless message": (endless(bytes(1 << 16), struct.pack("<I", 2**32 - 1)), {LARGE}),
    "endless empty messages": (endless(bytes(1 << 16)), {None}),
    "endless messages of one byte": (endless(framed(b"x") * 5000), {None}),
    "two messages": (sending(framed(b"x") + framed(b"y")), {None}),
    "a message that drips": (dripping(framed(bytes(1000))), {LATE}),
}
