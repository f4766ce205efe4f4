"""bRPC and framed upstreams that misbehave: every error typed, within its deadline, on its own connection.

The servers run in threads of their own, so that the CPU time of the event loop's thread is the client's: no step of
the loop may take more than 50 ms of it.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.wire import BrpcRequest, FramedRequest
from interlingua.schemas import Context, ErrorCode, InferenceError
from tests.standins.brpc_frames import SERVICE, fields, frame
from tests.standins.brpc_server import answer_frame

DEADLINE_SECS = 0.4
SLACK_SECS = 2.0
"""What a busy machine may add."""

BLOCKED_SECS = 0.05
LIMIT = 1 << 20
GROWTH_KIB = 64 << 10
BAD, LATE, DOWN, LARGE = (
    ErrorCode.BAD_UPSTREAM,
    ErrorCode.DEADLINE_EXCEEDED,
    ErrorCode.UNAVAILABLE,
    ErrorCode.TOO_LARGE,
)
Behaviour = Callable[[socket.socket, int], None]
"""What a server does with a connection after the first request, whose correlation id is given (tcp: 0)."""


def sending(*data: Callable[[int], bytes] | bytes, then: str = "hang") -> Behaviour:
    """Sends ``data``; then hangs, closes, half-closes or resets."""

    def behave(sock: socket.socket, correlation_id: int) -> None:
        for each in data:
            sock.sendall(each(correlation_id) if callable(each) else each)
        if then == "hang":
            hang(sock, correlation_id)
        elif then == "half-close":
            sock.shutdown(socket.SHUT_WR)
            hang(sock, correlation_id)
        elif then == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave


def endless(data: Callable[[int], bytes], first: Callable[[int], bytes] = lambda _: b"") -> Behaviour:
    """Sends ``first``, and ``data`` until the client hangs up."""

    def behave(sock: socket.socket, correlation_id: int) -> None:
        sock.sendall(first(correlation_id))
        while True:
            sock.sendall(data(correlation_id))

    return behave


def hang(sock: socket.socket, correlation_id: int) -> None:
    while sock.recv(1 << 16):
        pass


def deaf(sock: socket.socket, correlation_id: int) -> None:
    time.sleep(DEADLINE_SECS + 0.2)


def dripping(data: Callable[[int], bytes]) -> Behaviour:
    def behave(sock: socket.socket, correlation_id: int) -> None:
        for octet in data(correlation_id):
            sock.sendall(bytes([octet]))
            time.sleep(0.02)

    return behave


def claim(size: int, meta: bytes = b"") -> bytes:
    return b"PRPC" + struct.pack(">II", size, len(meta)) + meta


def reply_claim(correlation_id: int, size: int) -> bytes:
    """The beginning of a reply with a body of that size."""
    meta = answer_frame(correlation_id)[12:]
    return claim(size, meta)


def long_error(correlation_id: int, size: int) -> bytes:
    return answer_frame(correlation_id, code=2001, words=b"\xff" * size)


def unknown(correlation_id: int) -> bytes:
    return answer_frame(correlation_id + 1000) * 5000


BRPC: dict[str, tuple[Behaviour, set[ErrorCode | None]]] = {
    "garbage": (sending(b"\0\1\2garbage" * 100), {BAD}),
    "HTTP": (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {BAD}),
    "HTTP/2": (sending(b"\0\0\0\4\0\0\0\0\0"), {BAD}),
    "half a header": (sending(b"PRPC\0\0"), {LATE}),
    "half a reply": (sending(lambda each: answer_frame(each, bytes(100))[:-50]), {LATE}),
    "half a reply, close": (sending(lambda each: answer_frame(each, bytes(100))[:-50], then=""), {DOWN}),
    "half a reply, reset": (sending(lambda each: answer_frame(each, bytes(100))[:-50], then="reset"), {DOWN}),
    "close": (sending(then=""), {DOWN}),
    "half-close": (sending(then="half-close"), {DOWN}),
    "reset": (sending(then="reset"), {DOWN}),
    "silence": (sending(), {LATE}),
    "never reads": (deaf, {LATE}),
    "a claim of 2 GiB": (sending(lambda each: reply_claim(each, 2**31), bytes(1 << 16)), {LARGE}),
    "an endless reply": (
        endless(lambda _: bytes(1 << 16), lambda each: reply_claim(each, 2**32 - 1)),
        {LARGE},
    ),
    "a claim of 2 GiB of meta": (sending(b"PRPC" + struct.pack(">II", 2**31, 2**31)), {BAD}),
    "replies to unknown calls": (endless(unknown), {BAD}),
    "endless replies to the call": (endless(lambda each: answer_frame(each) * 5000), {None}),
    "an endless run of empty frames": (endless(lambda _: claim(0) * 5000), {BAD}),
    "an endless run of impossible frames": (endless(lambda _: b"PRPC\0\0\0\0\0\0\0\1" * 5000), {BAD}),
    "meta that is no protobuf": (sending(frame(b"\xff\xff")), {BAD}),
    "an unknown compression": (sending(lambda each: answer_frame(each, b"x", compress_type=77)), {BAD}),
    "no gzip": (sending(lambda each: answer_frame(each, b"x", compress_type=2)), {BAD}),
    "a bomb": (
        sending(lambda each: answer_frame(each, gzip.compress(bytes(16 * LIMIT)), compress_type=2)),
        {LARGE},
    ),
    "an attachment of 2 GiB": (sending(lambda each: answer_frame(each, attachment_size=2**31 - 1)), {BAD}),
    "a negative attachment": (sending(lambda each: answer_frame(each, attachment_size=-5)), {None, BAD}),
    "a long error": (sending(lambda each: long_error(each, LIMIT // 2)), {ErrorCode.MODEL_FAILED}),
    "an error above the limit": (sending(lambda each: long_error(each, LIMIT)), {BAD}),
    "drips": (dripping(lambda each: answer_frame(each, bytes(1000))), {LATE}),
}

TCP: dict[str, tuple[Behaviour, set[ErrorCode | None]]] = {
    "garbage": (sending(b"\xff" * 1000), {LARGE}),
    "HTTP": (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {BAD}),
    "half a size": (sending(b"\1\0"), {LATE}),
    "half a message": (sending(struct.pack("<I", 100) + bytes(50)), {LATE}),
    "half a message, close": (sending(struct.pack("<I", 100) + bytes(50), then=""), {DOWN}),
    "half a message, reset": (sending(struct.pack("<I", 100) + bytes(50), then="reset"), {DOWN}),
    "close": (sending(then=""), {DOWN}),
    "half-close": (sending(then="half-close"), {DOWN}),
    "reset": (sending(then="reset"), {DOWN}),
    "silence": (sending(), {LATE}),
    "never reads": (deaf, {LATE}),
    "a claim of 2 GiB": (sending(struct.pack("<I", 2**31), bytes(1 << 16)), {LARGE}),
    "an endless message": (
        endless(lambda _: bytes(1 << 16), lambda _: struct.pack("<I", 2**32 - 1)),
        {LARGE},
    ),
    "an endless run of empty messages": (endless(lambda _: bytes(1 << 16)), {None}),
    "two messages": (sending(struct.pack("<I", 1) + b"x" + struct.pack("<I", 1) + b"y"), {None}),
    "drips": (dripping(lambda _: struct.pack("<I", 1000) + bytes(1000)), {LATE}),
}

CASES = [("brpc", name, *case) for name, case in BRPC.items()]
CASES += [("tcp", name, *case) for name, case in TCP.items()]


def received(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def read_brpc(sock: socket.socket) -> int:
    """The correlation id of the next request."""
    size, meta_size = struct.unpack(">II", received(sock, 12)[4:])
    (found,) = fields(received(sock, size)[:meta_size])[4]
    assert isinstance(found, int)
    return found


def read_framed(sock: socket.socket) -> int:
    (size,) = struct.unpack("<I", received(sock, 4))
    received(sock, size)
    return 0


class Server:
    """Its first connection misbehaves, all others answer ``well``."""

    def __init__(self, transport: str, behaviour: Behaviour) -> None:
        self._read = read_brpc if transport == "brpc" else read_framed
        self._brpc = transport == "brpc"
        self._behaviour = behaviour
        self._listening = socket.create_server(("127.0.0.1", 0))
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
                thread = threading.Thread(target=self._serve, args=(sock, self.accepted == 1))
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket, first: bool) -> None:
        with sock, suppress(OSError):
            if first and self._behaviour is not deaf:
                self._behaviour(sock, self._read(sock))
            elif first:
                deaf(sock, 0)
            else:
                while True:
                    correlation_id = self._read(sock)
                    good = answer_frame(correlation_id, b"well") if self._brpc else b"\4\0\0\0well"
                    sock.sendall(good)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(15)
            assert not thread.is_alive()


@asynccontextmanager
async def misbehaving(transport: str, behaviour: Behaviour) -> AsyncIterator[tuple[Any, Server]]:
    server = Server(transport, behaviour)
    client: Any = client_of(transport)(parse_url(server.url, transport), max_response_bytes=LIMIT)
    try:
        yield client, server
    finally:
        await client.close()
        await asyncio.to_thread(server.close)


@contextmanager
def watched() -> Iterator[list[float]]:
    """The CPU seconds of the loop's thread between two of its ticks."""
    loop, steps, last = asyncio.get_running_loop(), [0.0], time.thread_time()
    handle: asyncio.TimerHandle

    def tick() -> None:
        nonlocal last, handle
        now = time.thread_time()
        steps.append(now - last)
        last = now
        handle = loop.call_later(0.005, tick)

    handle = loop.call_later(0, tick)
    try:
        yield steps
    finally:
        handle.cancel()


def request(transport: str, size: int = 64) -> Any:
    context = Context(deadline=time.monotonic() + DEADLINE_SECS)
    if transport == "tcp":
        return FramedRequest(parts=(struct.pack("<I", size), bytes(size)), context=context)
    return BrpcRequest(SERVICE, "Predict", bytes(size), context=context)


async def code_of(client: Any, asked: Any) -> ErrorCode | None:
    """The code of its error; None for an answer."""
    (outcome,) = await asyncio.gather(client.send(asked), return_exceptions=True)
    if isinstance(outcome, InferenceError):
        assert outcome.message
        return outcome.code
    assert not isinstance(outcome, BaseException), outcome
    return None


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.parametrize(
    ("transport", "name", "behaviour", "codes"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES]
)
async def test_a_misbehaving_upstream_costs_its_own_connection(
    transport: str, name: str, behaviour: Behaviour, codes: set[ErrorCode | None]
) -> None:
    before = resident_kib()
    async with misbehaving(transport, behaviour) as (client, server):
        with watched() as steps:
            began = time.monotonic()
            code = await code_of(client, request(transport, 16 << 20 if behaviour is deaf else 64))
            took = time.monotonic() - began
            # what a server sends later must not fail the next calls
            await asyncio.sleep(0.05)
            assert code in codes
            assert took < DEADLINE_SECS + SLACK_SECS
            # one call may meet the misbehaving connection once more
            assert await code_of(client, request(transport)) in (None, BAD, LATE, DOWN)
            for _ in range(3):
                answer = await client.send(request(transport))
                assert bytes(answer.message) == b"well"
        assert max(steps) < BLOCKED_SECS, max(steps)
        assert server.accepted <= 3
    assert resident_kib() - before < GROWTH_KIB
