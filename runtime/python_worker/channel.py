"""Messages between the server and a worker: frames on a stream socket.

A frame is a JSON value, a payload of bytes, and file descriptors. ``process`` and ``worker`` define the
messages.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

_HEADER = struct.Struct("<III")

READ_SIZE = 1 << 16
MAX_DESCRIPTORS = 16
_ANCILLARY = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)


class ChannelFrame(NamedTuple):
    """A received message. ``payload`` is the receiver's own; ``descriptors`` are open."""

    value: Any
    payload: bytearray
    descriptors: list[int]


def encode(value: Any, payload: bytes = b"", descriptors: int = 0) -> bytes:
    """A frame that is sent with ``descriptors`` descriptors."""
    text = orjson.dumps(value)
    return b"".join((_HEADER.pack(len(text), len(payload), descriptors), text, payload))


def send(sock: socket.socket, data: bytes | memoryview, descriptors: Sequence[int]) -> int:
    """Send as much of ``data`` as fits, ``descriptors`` with its first byte. Returns the number of bytes."""
    if not descriptors:
        return sock.send(data)
    return socket.send_fds(sock, [data], list(descriptors))


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """What has arrived; no bytes if the other side has closed or is gone. Raises ``BlockingIOError``."""
    try:
        data, ancillary, _, _ = sock.recvmsg(READ_SIZE, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        raise
    except OSError:
        return b"", []
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content)
    return data, descriptors.tolist()


class ChannelWriter:
    """What ``sock``, which does not block, has not yet taken."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._waiting: deque[tuple[memoryview, Sequence[int]]] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def put(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Have a frame sent by :meth:`flush`, and its ``descriptors``, which belong to it, closed then."""
        self._waiting.append((memoryview(data), descriptors))

    def flush(self) -> bool:
        """Send as much as fits. Whether nothing waits. Raises ``OSError`` after the other side has closed."""
        while self._waiting:
            data, descriptors = self._waiting[0]
            try:
                sent = send(self._sock, data, descriptors)
            except BlockingIOError:
                return False
            _close(descriptors)
            if sent < len(data):
                self._waiting[0] = data[sent:], ()
            else:
                self._waiting.popleft()
        return True

    def drop(self) -> None:
        """Send nothing more."""
        while self._waiting:
            _close(self._waiting.popleft()[1])


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class ChannelReader:
    def __init__(self) -> None:
        self._data = bytearray()
        self._descriptors: deque[int] = deque()

    def feed(self, data: bytes, descriptors: Sequence[int]) -> Iterator[ChannelFrame]:
        """Yield the frames that are complete now."""
        self._data += data
        self._descriptors.extend(descriptors)
        while len(self._data) >= _HEADER.size:
            text, payload, count = _HEADER.unpack_from(self._data)
            end = _HEADER.size + text + payload
            if len(self._data) < end:
                return
            middle = _HEADER.size + text
            frame = ChannelFrame(
                orjson.loads(self._data[_HEADER.size : middle]),
                self._data[middle:end],
                [self._descriptors.popleft() for _ in range(count)],
            )
            del self._data[:end]
            yield frame
