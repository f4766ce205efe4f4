"""Sends the same request again and again, one at a time: cheap, dumb, in a process of its own.

One JSON object per line in, one per line out. HTTP goes over a blocking socket, so that as little as
possible of what is measured happens here.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc

_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

Send = Callable[[], bytes]
"""Sends the request and returns the whole answer."""


def connected(address: str) -> socket.socket:
    """A new connection, whose calls time out."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def http(address: str, method: str, request: bytes, closing: ExitStack) -> Send:
    """One kept connection; ``method`` is for gRPC alone. Raises ``RuntimeError`` for an answer that is
    not 200."""
    connection = closing.enter_context(connected(address))
    buffer = bytearray(len(request) * 4 + (64 << 10))
    view = memoryview(buffer)

    def send() -> bytes:
        connection.sendall(request)
        got = 0
        while (head := buffer.find(b"\r\n\r\n", 0, got)) < 0:
            got += _some(connection.recv_into(view[got:]))
        length = int(bytes(buffer[:head]).lower().split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
        while got < head + 4 + length:
            got += _some(connection.recv_into(view[got:]))
        if not buffer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server answered {bytes(buffer[:got])[:300]!r}")
        return view[head + 4 : got]  # type: ignore[return-value]

    return send


def tcp(address: str, method: str, request: bytes, closing: ExitStack) -> Send:
    """One connection; a message has its size before it, the answer too."""
    connection = closing.enter_context(connected(address))
    view = memoryview(bytearray(len(request) + (64 << 10)))

    def send() -> bytes:
        connection.sendall(request)
        got = _some(connection.recv_into(view))
        while got < 4 or got < 4 + int.from_bytes(view[:4], "little"):
            got += _some(connection.recv_into(view[got:]))
        return view[4:got]  # type: ignore[return-value]

    return send


def grpc_(address: str, method: str, request: bytes, closing: ExitStack) -> Send:
    """One channel, messages as bytes. Raises ``grpc.RpcError`` for every status but OK."""
    channel = closing.enter_context(grpc.insecure_channel(address, options=_UNLIMITED))
    call = channel.unary_unary(method)
    return lambda: call(request, timeout=30)


def _some(received: int) -> int:
    if not received:
        raise RuntimeError("the server closed the connection")
    return received


def drive(order: dict[str, Any]) -> dict[str, Any]:
    """Send ``order['count']`` requests, fewer where ``order['secs']`` pass before. The first answer has
    to contain what it should: a fast refusal must not look like a fast server."""
    request, expected = Path(order["request"]).read_bytes(), Path(order["expected"]).read_bytes()
    connect = {"http": http, "grpc": grpc_, "tcp": tcp}[order["transport"]]
    with ExitStack() as closing:
        send = connect(order["address"], order["method"], request, closing)
        answer = bytes(send())
        if expected not in answer:
            raise RuntimeError(f"the answer is not the one that was expected: {answer[:300]!r}")
        done, began = 1, time.monotonic()
        while done < order["count"] and time.monotonic() - began < order["secs"]:
            send()
            done += 1
        return {"count": done, "secs": time.monotonic() - began}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(drive(json.loads(line)))}\n")
        sys.stdout.flush()
