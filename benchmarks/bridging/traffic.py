"""The load: 32 requests in flight from h2load where it is installed, otherwise from ``benchmarks.clients``.

Before each turn a few requests check the answer byte by byte. Of h2load's answers all must have the status
200 and the size of that one.
"""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import processes
from benchmarks.bridging.requests import Request
from benchmarks.processes import Server

IN_FLIGHT = 32
GRPC_CONNECTIONS = 4
"""Of HTTP/2, with 8 streams each; over HTTP/1.1 every request has a connection."""

_CHECKS = 3
_WITHIN_SECS = 120.0
_LEAST_SECS = 0.2
_DONE = re.compile(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx")
_DATA = re.compile(r"\((\d+)\) data")


class Traffic:
    """Sends requests to servers, with ``tls`` over that; ``folder`` takes the bodies."""

    def __init__(self, folder: Path, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._file = folder / "body"
        self._h2load = shutil.which("h2load")

    @property
    def name(self) -> str:
        """What sends."""
        return "h2load" if self._h2load else "benchmarks.clients"

    def cost_us(self, server: Server, request: Request, count: int) -> float:
        """CPU microseconds of ``server`` and its children for one of ``count`` requests. Raises
        ``RuntimeError`` for a wrong answer."""
        address = server.addresses[request.transport]
        answer = check(address, request, self._tls)
        if self._h2load is None:
            if self._tls is not None:
                raise RuntimeError("TLS needs h2load (Debian's package nghttp2-client)")
            return self._cost_by_clients(server, request, count)
        prefix = 5 if request.transport == "grpc" else 0
        self._file.write_bytes(request.entity())
        command = self._command(address, request, count)
        before = server.cpu_secs()
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_SECS, check=True)
        spent = server.cpu_secs() - before
        statuses, data = _DONE.search(done.stdout), _DATA.search(done.stdout)
        if statuses is None or data is None or int(statuses[1]) != count:
            raise RuntimeError(f"h2load counted errors: {done.stdout[-1000:]}")
        if int(data[1]) != count * (len(answer) + prefix):
            raise RuntimeError(
                f"{count} answers have {data[1]} bytes, the first has {len(answer)} + {prefix}"
            )
        return spent / count * 1e6

    def _command(self, address: str, request: Request, count: int) -> Sequence[str]:
        grpc = request.transport == "grpc"
        connections, streams = (GRPC_CONNECTIONS, IN_FLIGHT // GRPC_CONNECTIONS) if grpc else (IN_FLIGHT, 1)
        assert self._h2load is not None
        command = [self._h2load, "-n", str(count), "-c", str(connections), "-m", str(streams)]
        if not grpc:
            command.append("--h1")
        for name, value in request.headers.items():
            command += ["-H", f"{name}: {value}"]
        scheme = "http" if self._tls is None else "https"
        return [*command, "-d", str(self._file), f"{scheme}://{address}{request.path}"]

    def _cost_by_clients(self, server: Server, request: Request, count: int) -> float:
        """The same by clients that send one request each; they run for a time instead of a number."""
        self._file.write_bytes(request.sent())
        order = {
            "transport": request.transport,
            "address": server.addresses[request.transport],
            "method": request.path,
            "request": str(self._file),
            "clients": IN_FLIGHT,
            "secs": max(_LEAST_SECS, count / 3000),
        }
        with processes.clients() as clients:
            clients.connect(order)
            before = server.cpu_secs()
            done = clients.go()
        return (server.cpu_secs() - before) / done["count"] * 1e6


def check(address: str, request: Request, tls: ssl.SSLContext | None = None) -> bytes:
    """The answer to ``request``. Raises ``RuntimeError`` if answers differ, fail, or lack ``echoed``."""
    host, _, port = address.rpartition(":")
    wire = request.wire()
    answers = set()
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=_WITHIN_SECS))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname="localhost"))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_CHECKS):
            wire.begin()
            answer = None
            while answer is None:
                while wire.outgoing:
                    connection.sendall(wire.outgoing.popleft())
                data = connection.recv(1 << 20)
                if not data:
                    raise RuntimeError(f"the server at {address} closed the connection")
                answer = wire.feed(data)
            answers.add(answer)
    first, *others = answers
    # some write JSON over many lines
    if others or (request.echoed not in first and request.echoed not in first.translate(None, b" \n")):
        raise RuntimeError(f"the answer of {address} is wrong: {first[:300]!r}")
    return first
