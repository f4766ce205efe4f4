"""Clients that behave: a small inference, and ``/health/live``, each 20 ms on a connection of its own.

Latency counts from the moment at which a request is due, so that a server that stalls for a second is late
for fifty requests, not for one.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks import load
from benchmarks.bridging.requests import request
from benchmarks.cases import CASES
from benchmarks.wire import Http2

INTERVAL_SECS = 0.02
SIZE = 64

Send = Callable[[], Any]


@dataclass(frozen=True)
class Latency:
    """Of the requests that were due in one period: milliseconds, and how many failed."""

    median_ms: float
    worst_ms: float
    lost: int

    @classmethod
    def of(cls, secs: list[float], lost: int) -> Latency:
        """Of requests that took so many seconds."""
        if not secs:
            return cls(float("inf"), float("inf"), lost)
        return cls(round(statistics.median(secs) * 1e3, 2), round(max(secs) * 1e3, 1), lost)


class Probe:
    """Sends a request every 20 ms in a thread of its own, from its start to :meth:`stop`. A failed request
    counts as lost, and the next one goes over a new connection."""

    def __init__(self, connect: Callable[[ExitStack], Send]) -> None:
        self._connect = connect
        self._stopped = threading.Event()
        self._secs: list[float] = []
        self._lost = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> Latency:
        """The latencies since the last call."""
        secs, self._secs = self._secs, []
        lost, self._lost = self._lost, 0
        return Latency.of(secs, lost)

    def stop(self) -> Latency:
        """End, once the last request has its answer."""
        self._stopped.set()
        self._thread.join()
        return self.take()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            with ExitStack() as closing:
                try:
                    send = self._connect(closing)
                    while not self._stopped.is_set():
                        send()
                        self._secs.append(time.monotonic() - due)
                        due += INTERVAL_SECS
                        self._stopped.wait(max(0.0, due - time.monotonic()))
                except (OSError, RuntimeError):
                    self._lost += 1
                    due = time.monotonic() + INTERVAL_SECS
                    self._stopped.wait(INTERVAL_SECS)


def inference(transport: str, address: str) -> Probe:
    """A small inference with OIP, over tcp with GraphPipe."""
    if transport == "grpc":
        sent = request("oip", "grpc", SIZE)
        return Probe(lambda closing: _http2(address, sent.path, sent.body, closing))
    if transport == "tcp":
        frame, _ = next(case for case in CASES if case.transport == "tcp").request()
        return Probe(lambda closing: load.tcp(address, "", frame, closing))
    whole = request("oip", "http", SIZE).sent()
    return Probe(lambda closing: load.http(address, "", whole, closing))


def health(address: str) -> Probe:
    """``/health/live`` of the operator's address."""
    whole = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
    return Probe(lambda closing: load.http(address, "", whole, closing))


def page(address: str) -> Probe:
    """A message to a server that sends back what it gets, over HTTP/2."""
    return Probe(lambda closing: _http2(address, "/", bytes(SIZE), closing))


def _http2(address: str, method: str, message: bytes, closing: ExitStack) -> Send:
    connection = closing.enter_context(load.connected(address))
    wire = Http2(method, message)

    def send() -> bytes:
        wire.begin()
        while True:
            while wire.outgoing:
                connection.sendall(wire.outgoing.popleft())
            data = connection.recv(1 << 16)
            if not data:
                raise RuntimeError("the server closed the connection")
            if (answer := wire.feed(data)) is not None:
                return answer

    return send
