"""What detection costs: CPU of the daemon per request on a listener of one transport, and of any, in turns.

``python -m benchmarks.any_port [--quick]``: h2load sends 32 requests in flight to the identity model over
connections that are kept, and a client of baidu_std one at a time, in many short turns; in the last row each
request has a connection of its own. Both listeners are those of one process, and take turns in both orders.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.bridging.requests import request
from benchmarks.bridging.traffic import Traffic
from benchmarks.cases import CONFIG, MODEL
from benchmarks.load import connected
from benchmarks.processes import Server
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.brpc.frame import write_request
from interlingua.schemas import InferRequest, Operation, Tensor

TARGET_US = 3.0
"""How much a request may cost more on a listener of any transport."""

_ROUNDS, _QUICK_ROUNDS = 9, 3
_SHORT, _SHORT_ROUNDS = 100, 61
"""The requests of a short turn, and how many turns: requests one at a time vary by more than the target."""

_ROWS = (("oip", "http", 8000), ("oip", "grpc", 8000), ("trtis", "http", 8000), ("graphpipe", "http", 8000))
_TRANSPORTS = ("http", "grpc", "brpc")
_IN_SHORT_TURNS = "grps brpc, 64 B"
Cost = Callable[[Server], float]
"""CPU microseconds of a server for one request."""


def config() -> dict[str, Any]:
    """A listener of each transport, and one of any."""
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in (*_TRANSPORTS, "any")]
    return {"server": CONFIG["server"], "listeners": listeners, "models": CONFIG["models"]}


def listeners_of(daemon: Server) -> tuple[Server, Server]:
    """The daemon with its listeners of one transport, and with that of any."""
    return daemon, Server(daemon.pid, dict.fromkeys(_TRANSPORTS, daemon.addresses["any"]))


def brpc_us(count: int, server: Server) -> float:
    """The cost of a predict of grps over baidu_std."""
    binding = DIALECTS["grps"].bindings["brpc"]
    asked = InferRequest(MODEL, (Tensor.from_numpy("INPUT0", np.zeros((1, 16), np.float32)),))
    call, _ = binding.calls[Operation.INFER].encode(asked, None)
    frame = b"".join(write_request(call.service, call.method, 1, call.message))
    with connected(server.addresses["brpc"]) as connection, connection.makefile("rb") as answers:
        before = server.cpu_secs()
        for _ in range(count):
            connection.sendall(frame)
            head = answers.read(12)
            if head[:4] != b"PRPC":
                raise RuntimeError(f"the server answered {head!r}")
            answers.read(int.from_bytes(head[4:8], "big"))
        return (server.cpu_secs() - before) / count * 1e6


def connection_us(count: int, server: Server) -> float:
    """The cost of a connection with one request of HTTP."""
    asked = request("oip", "http", 64).sent()
    before = server.cpu_secs()
    for _ in range(count):
        with connected(server.addresses["http"]) as connection:
            connection.sendall(asked)
            if not connection.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("the request failed")
            connection.shutdown(socket.SHUT_RDWR)
    return (server.cpu_secs() - before) / count * 1e6


def rows(traffic: Traffic, share: int) -> dict[str, Cost]:
    """What is measured, by its name; ``share`` divides the numbers of requests."""
    found: dict[str, Cost] = {}
    for dialect, transport, count in _ROWS:
        asked = request(dialect, transport, 64)
        found[f"{dialect} {transport}, 64 B"] = partial(
            lambda asked, count, server: traffic.cost_us(server, asked, count), asked, count // share
        )
    found[_IN_SHORT_TURNS] = partial(brpc_us, _SHORT)
    found["a connection and its request, oip http, 64 B"] = partial(connection_us, 1600 // share)
    return found


def turn(cost: Cost, servers: tuple[Server, Server], number: int) -> tuple[float, float]:
    """The costs of both ``servers``, of which the first one comes first in every second turn."""
    if number % 2:
        return cost(servers[0]), cost(servers[1])
    shared = cost(servers[1])
    return cost(servers[0]), shared


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.any_port")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print("| | own, µs | any, µs | difference, µs |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        daemon = stack.enter_context(processes.daemon(Path(scratch), config()))
        servers = listeners_of(daemon)
        for name, cost in rows(Traffic(Path(scratch)), 4 if quick else 1).items():
            rounds = _SHORT_ROUNDS if name == _IN_SHORT_TURNS else _QUICK_ROUNDS if quick else _ROUNDS
            turns = [turn(cost, servers, number) for number in range(rounds + 1)][
                1:
            ]  # the first one warms up
            own, shared = (statistics.median(costs) for costs in zip(*turns, strict=True))
            more = statistics.median(shared - own for own, shared in turns)
            print(f"| {name} | {own:.1f} | {shared:.1f} | {more:+.1f} |", flush=True)
    print(f"\nThe target is {TARGET_US:g} µs for requests of connections that are kept.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
