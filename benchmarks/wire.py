"""Two clients' side of a connection, as little as a load generator needs: bytes out, bytes in, no sockets.

Contract: one request at a time. ``begin`` queues it in ``outgoing``, ``feed`` takes what was received and
gives the body or message of the answer once it is whole. What a server may not
do to a benchmark (an error, a closed stream) raises ``RuntimeError``.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from typing import Protocol

_CHUNK = 1 << 20
_NO_HEADERS: Mapping[str, str] = {}


class Wire(Protocol):
    """``outgoing`` is what is to be sent, in order; whoever sends takes it out. ``head`` is that of the last
    answer, empty over gRPC."""

    outgoing: deque[memoryview]
    head: bytes

    def begin(self) -> None: ...

    def feed(self, data: bytes) -> bytes | None: ...


class Http1:
    """A kept connection of HTTP/1.1 on which ``request``, head and body, is sent again and again."""

    def __init__(self, request: bytes) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.head = b""
        self._request = memoryview(request)
        self._got = bytearray()
        self._missing = -1

    def change(self, request: bytes) -> None:
        """Send this one from now on."""
        self._request = memoryview(request)

    def begin(self) -> None:
        """Queue the request."""
        self.outgoing.append(self._request)

    def feed(self, data: bytes) -> bytes | None:
        """The body of the answer, where ``data`` completes it."""
        got = self._got
        got += data
        if self._missing < 0:
            head = got.find(b"\r\n\r\n")
            if head < 0:
                return None
            if not got.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"the server answered {bytes(got[:300])!r}")
            self.head = bytes(got[:head])
            length = self.head.lower().split(b"\r\ncontent-length:", 1)[1].split(b"\r\n", 1)[0]
            del got[: head + 4]
            self._missing = int(length)
        if len(got) < self._missing:
            return None
        self._got, self._missing = bytearray(), -1
        return bytes(got)


TCP_FRAME, BRPC_FRAME = struct.Struct("<I"), struct.Struct(">4xI4x")
"""The header of a frame: the size of what follows, of baidu_std too."""


class Frames:
    """A connection on which a ``frame`` is sent again and again, and whose answers are frames. The ``header``
    of a frame has the size of the rest."""

    def __init__(self, header: struct.Struct, frame: bytes) -> None:
        self._header = header
        self.outgoing: deque[memoryview] = deque()
        self.head = b""
        self._got = bytearray()
        self.change(frame)

    def change(self, frame: bytes) -> None:
        """Send this one from now on."""
        self._frame = memoryview(frame)

    def begin(self) -> None:
        """Queue the frame."""
        self.outgoing.append(self._frame)

    def feed(self, data: bytes) -> bytes | None:
        """The answer, where ``data`` completes it."""
        got = self._got
        got += data
        size = self._header.size
        if len(got) < size or len(got) < size + self._header.unpack_from(got)[0]:
            return None
        self._got = bytearray()
        return bytes(got)


_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_PADDED = 0x8
_INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 4, 5
_LARGEST_WINDOW = 2**31 - 1
_FIRST_WINDOW = 65_535
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTING = struct.Struct(">HI")


class Http2:
    """A connection of HTTP/2 on which the unary gRPC ``method`` is called with ``message`` again and again.

    It sends headers that no table is kept for, reads none, and takes an answer that ends without a message
    for the error that it is.
    """

    def __init__(self, method: str, message: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.head = b""
        self.change(method, message, headers)
        self._got = bytearray()
        self._stream = -1
        self._answer: list[bytes] = []
        self._window = _FIRST_WINDOW
        self._stream_window = self._initial_window = _FIRST_WINDOW
        self._frame_size = 16_384
        self._unacknowledged = 0
        settings = _SETTING.pack(_INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)
        self._send(_PREFACE + _frame(_SETTINGS, 0, 0, settings))
        self._send(_window_update(0, _LARGEST_WINDOW - _FIRST_WINDOW))

    def change(self, method: str, message: bytes, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """Send this one from now on; no call may be under way."""
        self._block = _header_block(method, headers)
        self._body = memoryview(struct.pack(">BI", 0, len(message)) + message)
        self._sent = len(self._body)

    def begin(self) -> None:
        """Queue a call, as far as the server's windows let it go."""
        self._stream += 2
        self._sent = 0
        self._answer = []
        self._stream_window = self._initial_window
        self._send(_frame(_HEADERS, _END_HEADERS, self._stream, self._block))
        self._send_body()

    def feed(self, data: bytes) -> bytes | None:
        """The message of the answer, where ``data`` completes it."""
        got = self._got
        got += data
        position, done = 0, False
        while len(got) - position >= 9:
            length = int.from_bytes(got[position : position + 3], "big")
            if len(got) - position - 9 < length:
                break
            kind, flags = got[position + 3], got[position + 4]
            payload = bytes(got[position + 9 : position + 9 + length])
            stream = int.from_bytes(got[position + 5 : position + 9], "big")
            position += 9 + length
            self._take(kind, flags, stream, payload)
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                done = True
        del got[:position]
        if not done:
            return None
        answer = b"".join(self._answer)
        if len(answer) < 5 or len(answer) != 5 + int.from_bytes(answer[1:5], "big"):
            raise RuntimeError("the call failed: its answer has no message")
        return answer[5:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            self._answer.append(payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload)
            self._unacknowledged += len(payload)
            if self._unacknowledged > _CHUNK:
                self._send(_window_update(0, self._unacknowledged))
                self._unacknowledged = 0
        elif kind == _SETTINGS and not flags & _ACK:
            for name, value in _SETTING.iter_unpack(payload):
                if name == _INITIAL_WINDOW_SIZE:
                    self._stream_window += value - self._initial_window
                    self._initial_window = value
                elif name == _MAX_FRAME_SIZE:
                    self._frame_size = value
            self._send(_frame(_SETTINGS, _ACK, 0, b""))
            self._send_body()
        elif kind == _WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self._stream_window += more if stream == self._stream else 0
            else:
                self._window += more
            self._send_body()
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RST_STREAM, _GOAWAY):
            raise RuntimeError(f"the server broke off: frame {kind}, {payload!r}")

    def _send_body(self) -> None:
        while (left := len(self._body) - self._sent) > 0:
            size = min(left, self._frame_size, self._window, self._stream_window)
            if size <= 0:
                return
            end = _END_STREAM if size == left else 0
            self._send(_frame_head(_DATA, end, self._stream, size))
            self.outgoing.append(self._body[self._sent : self._sent + size])
            self._sent += size
            self._window -= size
            self._stream_window -= size

    def _send(self, data: bytes) -> None:
        self.outgoing.append(memoryview(data))


def _header_block(method: str, more: Mapping[str, str]) -> bytes:
    """Every header in full, so that neither side has to remember any."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        **more,
    }
    parts = []
    for name, value in headers.items():
        parts += [b"\0", bytes([len(name)]), name.encode(), bytes([len(value)]), value.encode()]
    return b"".join(parts)


def _frame_head(kind: int, flags: int, stream: int, length: int) -> bytes:
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _frame_head(kind, flags, stream, len(payload)) + payload


def _window_update(stream: int, more: int) -> bytes:
    return _frame(_WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))
