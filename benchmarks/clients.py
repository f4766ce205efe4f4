"""Many clients at once, each sending the same request again when it has its answer: a process of its own.

One JSON object per line in, one per line out. For each order the clients connect, ask once, and the first
answer is shown; then a line ``go`` starts the clock. After ``secs`` no more requests are sent, and what
is under way is waited for, so that whatever the server did meanwhile was done for requests that count.
The same few lines drive every server: sockets that never block, and the protocols of ``benchmarks.wire``.
"""

from __future__ import annotations

import base64
import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.wire import Http1, Http2, Wire

_ANSWER_SECS = 120.0
_BUFFER = 1 << 20


class Client:
    """One connection, one request at a time."""

    def __init__(self, wire: Wire, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        self.began = 0.0
        self.wire = wire
        self._socket = connection
        self._selector = selector
        self._events = selectors.EVENT_READ
        selector.register(connection, self._events, self)

    def ask(self) -> None:
        """Send the request, or begin to."""
        self.began = time.monotonic()
        self.wire.begin()
        self._push()

    def answer(self, events: int) -> bytes | None:
        """Go on with what ``events`` allow; the answer, where it is whole."""
        found = None
        if events & selectors.EVENT_READ:
            data = self._socket.recv(_BUFFER)
            if not data:
                raise RuntimeError("the server closed the connection")
            found = self.wire.feed(data)
        self._push()
        return found

    def _push(self) -> None:
        outgoing = self.wire.outgoing
        while outgoing:
            # as many parts as the system takes in one call
            parts = [outgoing[index] for index in range(min(len(outgoing), 64))]
            try:
                sent = self._socket.sendmsg(parts)
            except BlockingIOError:
                break
            while outgoing and sent >= len(outgoing[0]):
                sent -= len(outgoing.popleft())
            if sent:
                outgoing[0] = outgoing[0][sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if outgoing else 0)
        if events != self._events:
            self._events = events
            self._selector.modify(self._socket, events, self)


def connected(
    order: dict[str, Any], selector: selectors.BaseSelector, closing: ExitStack
) -> Iterator[Client]:
    """The clients of ``order``."""
    host, _, port = order["address"].rpartition(":")
    request = Path(order["request"]).read_bytes()
    for _ in range(order["clients"]):
        connection = closing.enter_context(socket.create_connection((host, int(port)), timeout=30))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        wire = Http2(order["method"], request) if order["transport"] == "grpc" else Http1(request)
        yield Client(wire, connection, selector)


def rounds(selector: selectors.BaseSelector) -> Iterator[tuple[Client, bytes]]:
    """The answers as they come, while anybody takes them. Raises ``RuntimeError`` where none comes."""
    while True:
        ready = selector.select(_ANSWER_SECS)
        if not ready:
            raise RuntimeError(f"no answer within {_ANSWER_SECS:g} s")
        for key, events in ready:
            answer = key.data.answer(events)
            if answer is not None:
                yield key.data, answer


def drive(order: dict[str, Any], tell: Any, wait: Any) -> dict[str, Any]:
    """Carry out ``order``: ``tell`` the first answer, ``wait`` for the start, then the counts. Every answer
    has to be about as long as the first: a fast refusal must not look like a fast server."""
    with ExitStack() as closing:
        selector = closing.enter_context(selectors.DefaultSelector())
        clients = list(connected(order, selector, closing))
        answers = rounds(selector)
        for client in clients:
            client.ask()
        first = [next(answers) for _ in clients][-1]
        length = len(first[1])
        tell({"head": first[0].wire.head.decode(), "body": base64.b64encode(first[1]).decode()})
        wait()
        took: list[float] = []
        began = now = time.monotonic()
        until = began + order["secs"]
        for client in clients:
            client.ask()
        waiting = len(clients)
        for client, answer in answers:
            now = time.monotonic()
            # numbers as text are not all of one length
            if len(answer) < length * 0.9:
                raise RuntimeError(f"an answer has {len(answer)} bytes, the first had {length}")
            took.append(now - client.began)
            if now < until:
                client.ask()
            else:
                waiting -= 1
                if not waiting:
                    break
        took.sort()
        return {
            "count": len(took),
            "secs": now - began,
            "p50_ms": took[len(took) // 2] * 1e3,
            "p99_ms": took[len(took) * 99 // 100] * 1e3,
        }


def _tell(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        _tell(drive(json.loads(line), _tell, sys.stdin.readline))
