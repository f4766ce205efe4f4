"""What TLS costs: CPU of the daemon per request, with and without it, in turns.

``python -m benchmarks.tls [--quick]``: h2load sends 32 requests in flight to the identity model over
connections that are kept; in the last row each request has a connection of its own, and a handshake with TLS.
The certificate is the example's (ECDSA on P-256).
"""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import processes, progress
from benchmarks.bridging.requests import Request, request
from benchmarks.bridging.traffic import Traffic
from benchmarks.cases import CONFIG
from benchmarks.processes import Server

_ROUNDS, _QUICK_ROUNDS = 7, 3
_FILES = processes.ROOT / "examples" / "tls"
_TLS = {"cert": str(_FILES / "localhost.pem"), "key": str(_FILES / "localhost.key")}
_ROWS = tuple(
    (transport, size, count)
    for transport in ("http", "grpc")
    for size, count in ((64, 8000), (64 << 10, 4000), (4 << 20, 160))
)


def _config(tls: bool) -> dict[str, Any]:
    listener = {"listen": "127.0.0.1:0", **({"tls": _TLS} if tls else {})}
    listeners = [{**listener, "transport": transport} for transport in ("http", "grpc")]
    return {"server": CONFIG["server"], "listeners": listeners, "models": CONFIG["models"]}


def _connections_us(server: Server, asked: Request, count: int, tls: ssl.SSLContext | None) -> float:
    """CPU microseconds for a connection with one request."""
    host, _, port = server.addresses["http"].rpartition(":")
    before = server.cpu_secs()
    for _ in range(count):
        with ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname="localhost"))
            connection.sendall(asked.sent())
            if not connection.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("the request failed")
    return (server.cpu_secs() - before) / count * 1e6


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rounds, share = (_QUICK_ROUNDS, 8) if quick else (_ROUNDS, 1)
    client = ssl.create_default_context(cafile=_TLS["cert"])
    print("| | plain, µs | TLS, µs | ratio |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        servers: list[tuple[Server, Traffic]] = []
        for name, tls in (("plain", None), ("tls", client)):
            folder = Path(scratch, name)
            folder.mkdir()
            server = stack.enter_context(processes.daemon(folder, _config(tls is not None)))
            servers.append((server, Traffic(folder, tls)))
        for transport, size, count in progress.each(_ROWS, lambda row: f"OIP {row[0]}, {row[1]:,} B"):
            asked = request("oip", transport, size)
            turns = [
                [traffic.cost_us(server, asked, max(32, count // share)) for server, traffic in servers]
                for _ in range(rounds)
            ]
            _print(f"OIP {transport}, {size:,} B", turns)
        asked = request("oip", "http", 64)
        contexts = (None, client)
        turns = [
            [
                _connections_us(server, asked, 800 // share, tls)
                for (server, _), tls in zip(servers, contexts, strict=True)
            ]
            for _ in range(rounds)
        ]
        _print("a connection and its request, OIP http, 64 B", turns)
    return 0


def _print(name: str, turns: list[list[float]]) -> None:
    plain, tls = (statistics.median(costs) for costs in zip(*turns, strict=True))
    ratio = statistics.median(with_tls / without for without, with_tls in turns)
    progress.say(f"| {name} | {plain:.0f} | {tls:.0f} | {ratio:.2f} |\n")


if __name__ == "__main__":
    sys.exit(main())
