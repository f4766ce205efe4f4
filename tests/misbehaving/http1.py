"""HTTP/1.1 servers that misbehave."""

from __future__ import annotations

import gzip
import re
import socket
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
    sending,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = OK + b"Content-Length: 4\r\n\r\nwell"


_LENGTH = re.compile(rb"(?is)content-length: *(\d+).*?\r\n\r\n")


class Http1Session:
    """Requests with a Content-Length, one at a time."""

    greeting = b""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def request(self) -> int:
        data = b""
        while (found := _LENGTH.search(data)) is None or len(data) < found.end() + int(found[1]):
            more = self._sock.recv(1 << 16)
            if not more:
                raise ConnectionError
            data += more
        return 0

    def good(self, request: int) -> bytes:
        return GOOD


def sized(coding: str, body: bytes) -> bytes:
    """An answer whose body is in ``coding``."""
    return OK + f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def line(text: bytes) -> bytes:
    """An answer of two bytes with one header line more."""
    return OK + text + b"\r\nContent-Length: 2\r\n\r\nok"


HTTP1: dict[str, Misbehaviour] = {
    # no answer, or part of one
    "silence": (sending(), {LATE}),
    "never reads": (deaf, {LATE}),
    "close": (sending(then=""), {DOWN}),
    "half-close": (sending(then="half-close"), {DOWN}),
    "reset": (sending(then="reset"), {DOWN}),
    "half a head": (sending(OK + b"A: b\r\n"), {LATE}),
    "half a head, close": (sending(OK + b"A: b\r\n", then=""), {DOWN}),
    "half a body": (sending(OK + b"Content-Length: 5\r\n\r\nab"), {LATE}),
    "half a body, close": (sending(OK + b"Content-Length: 5\r\n\r\nab", then=""), {DOWN}),
    "half a body, half-close": (sending(OK + b"Content-Length: 5\r\n\r\nab", then="half-close"), {DOWN}),
    "half a body, reset": (sending(OK + b"Content-Length: 5\r\n\r\nab", then="reset"), {DOWN}),
    "half a chunk, close": (sending(CHUNKED + b"5\r\nab", then=""), {DOWN}),
    "no last chunk, close": (sending(CHUNKED + b"2\r\nab\r\n", then=""), {DOWN}),
    "a head that drips": (endless(b"A: b\r\n", OK, 0.02), {LATE}),
    "a body that drips": (endless(b"x", OK + b"Content-Length: 1000000\r\n\r\n", 0.02), {LATE}),
    "an answer that drips": (dripping(OK + b"Content-Length: 1000\r\n\r\n" + bytes(1000)), {LATE}),
    # interim answers
    "endless 100 Continue": (endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), {BAD}),
    "endless early hints": (endless(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100), {BAD}),
    "100 Continue and no more": (sending(b"HTTP/1.1 100 Continue\r\n\r\n"), {LATE}),
    # header sections
    "a flood of headers": (endless(b"A: b\r\n" * 1000, OK), {BAD}),
    "a header without end": (endless(b"x" * 65536, OK + b"A: "), {BAD}),
    "a status line without end": (endless(b"x" * 65536, b"HTTP/1.1 200 "), {BAD}),
    "endless empty lines": (endless(b"\r\n" * 1000), {BAD, LATE}),
    "many headers": (sending(OK + b"A: b\r\n" * 5000 + b"\r\n"), {BAD}),
    "a NUL in a header": (sending(line(b"A: b\0c")), {BAD}),
    "a header without a colon": (sending(line(b"A b")), {BAD}),
    "a space before the colon": (sending(line(b"A : b")), {BAD}),
    # lengths
    "a claim of 2 GiB": (sending(OK + b"Content-Length: 2147483648\r\n\r\nab"), {LARGE}),
    "a length that no integer holds": (sending(OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n"), {BAD}),
    "a negative length": (sending(OK + b"Content-Length: -1\r\n\r\n"), {BAD}),
    "a length that is no number": (sending(OK + b"Content-Length: 0x2\r\n\r\nok"), {BAD}),
    "two lengths": (sending(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"), {BAD}),
    "a length and chunks": (sending(OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"), {BAD}),
    "an unknown transfer coding": (sending(OK + b"Transfer-Encoding: gzip\r\n\r\n"), {BAD}),
    "an endless body": (endless(b"x" * 65536, b"HTTP/1.0 200 OK\r\n\r\n"), {LARGE}),
    # chunks
    "endless chunks": (endless(b"10000\r\n" + b"x" * 65536 + b"\r\n", CHUNKED), {LARGE}),
    "endless chunks of one byte": (endless(b"1\r\nx\r\n" * 1000, CHUNKED), {LARGE, LATE}),
    "a chunk of a yottabyte": (sending(CHUNKED + b"f" * 24 + b"\r\nab"), {BAD}),
    "a chunk of a negative size": (sending(CHUNKED + b"-5\r\nab"), {BAD}),
    "a chunk longer than its size": (sending(CHUNKED + b"2\r\nabc\r\n0\r\n\r\n"), {BAD}),
    "a chunk size without end": (endless(b"0" * 5000, CHUNKED), {BAD, DOWN}),
    "a chunk extension without end": (endless(b"x" * 5000, CHUNKED + b"1;"), {BAD, DOWN}),
    "trailers without end": (endless(b"A: b\r\n" * 1000, CHUNKED + b"0\r\n"), {BAD, DOWN}),
    # codings
    "no gzip": (sending(sized("gzip", b"ok")), {BAD}),
    "half a gzip stream": (sending(sized("gzip", gzip.compress(bytes(1000))[:-9])), {BAD}),
    "a gzip bomb": (sending(sized("gzip", gzip.compress(bytes(64 * LIMIT), 1))), {LARGE}),
    "a deflate bomb": (sending(sized("deflate", zlib.compress(bytes(64 * LIMIT), 1))), {LARGE}),
    # other protocols
    "garbage": (sending(b"\0\1\2\3" * 100), {BAD}),
    "HTTP/2": (sending(b"\0\0\0\4\0\0\0\0\0"), {BAD}),
    "TLS": (sending(b"\x15\3\1\0\2\2\x50"), {BAD}),
    "SSH": (sending(b"SSH-2.0-OpenSSH_9\r\n"), {BAD}),
    "HTML without a head": (sending(b"<html>\r\n\r\n"), {BAD}),
    "a status that is no number": (sending(b"HTTP/1.1 ABC OK\r\n\r\n"), {BAD}),
    # answers to no request
    "two answers": (sending(GOOD, GOOD), {None}),
    "endless answers": (endless(GOOD * 1000), {None}),
    "garbage behind an answer": (sending(GOOD, b"\0\1\2"), {None}),
}
