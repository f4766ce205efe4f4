"""A server whose first connection misbehaves and whose others answer well.

Its connections run in threads of their own, so that the CPU time of the event loop's thread is the client's.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from interlingua.schemas import ErrorCode

MIB = 1 << 20
LIMIT = MIB
"""``max_response_bytes`` of the clients."""

DEADLINE_SECS = 0.4
BAD, LATE, DOWN, LARGE, FAILED = (
    ErrorCode.BAD_UPSTREAM,
    ErrorCode.DEADLINE_EXCEEDED,
    ErrorCode.UNAVAILABLE,
    ErrorCode.TOO_LARGE,
    ErrorCode.MODEL_FAILED,
)

Data = Callable[[int], bytes] | bytes
"""Bytes to send; a function makes them for the id of a request: its stream, or its correlation id."""

Behaviour = Callable[[socket.socket, int], None]
"""What a server does with a connection after its first request, whose id is given."""

Outcome = ErrorCode | int | None
"""An error's code, the status of an answer, or None for success."""

Misbehaviour = tuple[Behaviour, set[Outcome]]
"""What a server does, and which outcomes its caller may see."""


class Session(Protocol):
    """A connection's framing, as a server needs it."""

    greeting: bytes
    """Sent before the first request."""

    def __init__(self, sock: socket.socket) -> None: ...

    def request(self) -> int:
        """The id of the next request, once it is whole. Raises ``ConnectionError`` at the end."""

    def good(self, request: int) -> bytes:
        """The answer ``well``."""


def data_of(data: Data, request: int) -> bytes:
    return data(request) if callable(data) else data


def sending(*data: Data, then: str = "hang") -> Behaviour:
    """Sends ``data``; then hangs, closes, half-closes or resets."""

    def behave(sock: socket.socket, request: int) -> None:
        for each in data:
            sock.sendall(data_of(each, request))
        if then == "hang":
            hang(sock, request)
        elif then == "half-close":
            sock.shutdown(socket.SHUT_WR)
            hang(sock, request)
        elif then == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave


def endless(data: Data, first: Data = b"", pause: float = 0.0) -> Behaviour:
    """Sends ``first``, and ``data`` until the client hangs up."""

    def behave(sock: socket.socket, request: int) -> None:
        sock.sendall(data_of(first, request))
        repeated = data_of(data, request)
        while True:
            sock.sendall(repeated)
            time.sleep(pause)

    return behave


def hang(sock: socket.socket, request: int) -> None:
    """Reads until the client hangs up."""
    while sock.recv(1 << 16):
        pass


UNREAD_BYTES = 6 << 20
"""More than sockets take for a server that reads nothing: 4 MiB here (``tcp_wmem``), less than 1 MiB there."""


def deaf(sock: socket.socket, request: int) -> None:
    """Reads nothing, not even the request."""
    time.sleep(DEADLINE_SECS + 0.2)


def dripping(data: Data) -> Behaviour:
    """Sends ``data`` byte by byte."""

    def behave(sock: socket.socket, request: int) -> None:
        for octet in data_of(data, request):
            sock.sendall(bytes([octet]))
            time.sleep(0.02)

    return behave


def received(sock: socket.socket, size: int) -> bytes:
    """The next ``size`` bytes. Raises ``ConnectionError`` at the end."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


class Server:
    """Its first connection misbehaves (or ``every`` one), all others answer ``well``."""

    def __init__(self, session: type[Session], behaviour: Behaviour, *, every: bool = False) -> None:
        self._every = every
        self._session = session
        self._behaviour = behaviour
        self._listening = socket.create_server(("127.0.0.1", 0))
        if behaviour is deaf:
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.url = "{}:{}".format(*self._listening.getsockname())
        self.accepted = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                sock.settimeout(10)
                self.accepted += 1
                thread = threading.Thread(target=self._serve, args=(sock, self._every or self.accepted == 1))
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket, misbehaves: bool) -> None:
        with sock, suppress(OSError):
            session = self._session(sock)
            sock.sendall(session.greeting)
            if misbehaves:
                self._behaviour(sock, 0 if self._behaviour is deaf else session.request())
            else:
                while True:
                    sock.sendall(session.good(session.request()))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(15)
            assert not thread.is_alive()
