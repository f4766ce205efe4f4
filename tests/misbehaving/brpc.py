"""Servers of baidu_std that misbehave."""

from __future__ import annotations

import gzip
import socket
import struct
import zlib

from tests.misbehaving.server import (
    BAD,
    DOWN,
    FAILED,
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
from tests.standins.brpc_frames import fields, frame
from tests.standins.brpc_server import answer_frame


class BrpcSession:
    """``PRPC``, the sizes of body and meta, then both."""

    greeting = b""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def request(self) -> int:
        size, meta_size = struct.unpack(">II", received(self._sock, 12)[4:])
        (found,) = fields(received(self._sock, size)[:meta_size])[4]
        assert isinstance(found, int)
        return found

    def good(self, request: int) -> bytes:
        return answer_frame(request, b"well")


def claim(size: int, meta: bytes = b"") -> bytes:
    return b"PRPC" + struct.pack(">II", size, len(meta)) + meta


def reply_claim(correlation_id: int, size: int) -> bytes:
    """The beginning of a reply with a body of that size."""
    return claim(size, answer_frame(correlation_id)[12:])


def half(correlation_id: int) -> bytes:
    return answer_frame(correlation_id, bytes(100))[:-50]


GZIP_BOMB, ZLIB_BOMB = gzip.compress(bytes(16 * LIMIT), 1), zlib.compress(bytes(16 * LIMIT), 1)

BRPC: dict[str, Misbehaviour] = {
    "garbage": (sending(b"\0\1\2garbage" * 100), {BAD}),
    "HTTP": (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {BAD}),
    "HTTP/2": (sending(b"\0\0\0\4\0\0\0\0\0"), {BAD}),
    "half a header": (sending(b"PRPC\0\0"), {LATE}),
    "half a reply": (sending(half), {LATE}),
    "half a reply, close": (sending(half, then=""), {DOWN}),
    "half a reply, half-close": (sending(half, then="half-close"), {DOWN}),
    "half a reply, reset": (sending(half, then="reset"), {DOWN}),
    "close": (sending(then=""), {DOWN}),
    "half-close": (sending(then="half-close"), {DOWN}),
    "reset": (sending(then="reset"), {DOWN}),
    "silence": (sending(), {LATE}),
    "never reads": (deaf, {LATE}),
    "a claim of 2 GiB": (sending(lambda each: reply_claim(each, 2**31), bytes(1 << 16)), {LARGE}),
    "an endless reply": (endless(bytes(1 << 16), lambda each: reply_claim(each, 2**32 - 1)), {LARGE}),
    "a claim of 2 GiB of meta": (sending(claim(2**31, bytes(2**10))[:8] + struct.pack(">I", 2**31)), {BAD}),
    # passed over, as by the original
    "meta larger than its frame": (sending(b"PRPC" + struct.pack(">II", 10, 11) + bytes(10)), {LATE}),
    "replies to unknown calls": (endless(lambda each: answer_frame(each + 1000) * 5000), {BAD}),
    "endless replies to the call": (endless(lambda each: answer_frame(each) * 5000), {None}),
    "endless empty frames": (endless(claim(0) * 5000), {BAD}),
    "endless impossible frames": (endless(b"PRPC\0\0\0\0\0\0\0\1" * 5000), {BAD}),
    "meta that is no protobuf": (sending(frame(b"\xff\xff")), {BAD}),
    "an unknown compression": (sending(lambda each: answer_frame(each, b"x", compress_type=77)), {BAD}),
    "no gzip": (sending(lambda each: answer_frame(each, b"x", compress_type=2)), {BAD}),
    "a gzip bomb": (
        sending(lambda each: answer_frame(each, GZIP_BOMB, compress_type=2)),
        {LARGE},
    ),
    "a zlib bomb": (
        sending(lambda each: answer_frame(each, ZLIB_BOMB, compress_type=3)),
        {LARGE},
    ),
    "an attachment of 2 GiB": (sending(lambda each: answer_frame(each, attachment_size=2**31 - 1)), {BAD}),
    "a negative attachment": (sending(lambda each: answer_frame(each, attachment_size=-5)), {None, BAD}),
    "a long error": (
        sending(lambda each: answer_frame(each, code=2001, words=b"\xff" * (LIMIT // 2))),
        {FAILED},
    ),
    "an error above the limit": (
        sending(lambda each: answer_frame(each, code=2001, words=b"\xff" * LIMIT)),
        {BAD},
    ),
    "a reply that drips": (dripping(lambda each: answer_frame(each, bytes(1000))), {LATE}),
}
