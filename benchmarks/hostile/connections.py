"""Many connections at once, and bodies that are begun and never ended."""

from __future__ import annotations

import errno
import select
import socket
import time
from contextlib import ExitStack
from itertools import count

from benchmarks.bridging.requests import ModelUse
from benchmarks.cases import MODEL, http_request
from benchmarks.hostile.attack import Attack, Target
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.brpc.frame import BrpcFrameReader, write_request
from interlingua.schemas import Datatype, InferRequest, Operation, Tensor

CLIENTS = 1000
_ANSWER_SECS = 30.0
_BODY_BYTES = 64 << 20
_PIECE = bytes(1 << 16)


def brpc_clients(target: Target) -> int:
    """A thousand clients connect at once, and each sends one inference. Returns how many got no answer."""
    frame, expected = brpc_request()
    host, _, port = target.address.rpartition(":")
    with ExitStack() as closing:
        waiting: dict[int, tuple[socket.socket, BrpcFrameReader]] = {}
        poll = select.poll()
        for _ in range(CLIENTS):
            sock = closing.enter_context(socket.socket())
            sock.setblocking(False)
            code = sock.connect_ex((host, int(port)))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, "cannot connect")
            waiting[sock.fileno()] = sock, BrpcFrameReader()
            poll.register(sock, select.POLLOUT)
        until = time.monotonic() + _ANSWER_SECS
        lost = 0
        while waiting and time.monotonic() < until:
            for number, _ in poll.poll(100):
                sock, reader = waiting[number]
                answered = _go_on(sock, reader, frame, expected, poll)
                if answered is not None:
                    lost += not answered
                    poll.unregister(number)
                    del waiting[number]
        return lost + len(waiting)


def _go_on(
    sock: socket.socket, reader: BrpcFrameReader, frame: bytes, expected: bytes, poll: select.poll
) -> bool | None:
    """Send, or receive; whether the answer is right, None as long as it is not whole."""
    try:
        data = sock.recv(1 << 16)
    except BlockingIOError:
        sock.send(frame)
        poll.modify(sock, select.POLLIN)
        return None
    except OSError:
        return False
    reader.feed(data)
    answer = reader.next()
    reader.keep()
    if answer is None:
        return None if data else False
    return not answer.meta.error_code and expected in bytes(answer.payload or b"")


def brpc_request() -> tuple[bytes, bytes]:
    """The frame of an inference, and bytes that its answer contains."""
    payload = bytes(range(64))
    ask = InferRequest(MODEL, (Tensor("INPUT0", Datatype.FP32, (1, 16), memoryview(payload)),))
    call = DIALECTS["grps"].bindings["brpc"].calls[Operation.INFER].encode(ask, ModelUse().signature())[0]
    return b"".join(write_request(call.service, call.method, 1, bytes(call.message))), payload[4:8]


def silent_connections(target: Target) -> int:
    """Connections that send nothing, up to ten thousand."""
    with ExitStack() as closing:
        for number in count():
            if not target.going or number == 10_000:
                break
            closing.enter_context(target.connect())
        _wait(target)
    return 0


def reconnecting(target: Target) -> int:
    """Connections that are closed as soon as they are open, one after the other."""
    while target.going:
        target.connect().close()
    return 0


def half_bodies(target: Target) -> int:
    """A hundred requests of 64 MiB, of which the last byte never comes."""
    head = http_request(f"/v2/models/{MODEL}/infer", {}, b"").replace(
        b"Content-Length: 0", f"Content-Length: {_BODY_BYTES}".encode()
    )
    with ExitStack() as closing:
        clients = [closing.enter_context(target.connect()) for _ in range(100)]
        for client in clients:
            client.sendall(head)
            client.setblocking(False)
        left = dict.fromkeys(clients, _BODY_BYTES - 1)
        while target.going and left:
            _, ready, _ = select.select((), tuple(left), (), 0.1)
            for client in ready:
                try:
                    left[client] -= client.send(_PIECE[: left[client]])
                except BlockingIOError:
                    continue
                except OSError:  # refused
                    left[client] = 0
                if not left[client]:
                    del left[client]
        _wait(target)
    return 0


def _wait(target: Target) -> None:
    while target.going:
        time.sleep(0.05)


ATTACKS = (
    Attack("1,000 bRPC clients at once", "brpc", brpc_clients),
    Attack("10,000 silent connections, HTTP", "http", silent_connections),
    Attack("10,000 silent connections, gRPC", "grpc", silent_connections, generic=True),
    Attack("connect and close, HTTP", "http", reconnecting),
    Attack("connect and close, gRPC", "grpc", reconnecting, generic=True),
    # what has arrived is held, up to server.max_inflight_bytes
    Attack("100 bodies of 64 MiB without an end, HTTP", "http", half_bodies, memory_mib=4096),
)
