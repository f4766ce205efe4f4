"""A daemon without memory for a large body refuses it in the form of its dialect, and goes on."""

from __future__ import annotations

import json
import resource
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon

MIB = 1 << 20
SPARE_BYTES = 150 * MIB
"""More than a body first gets, less than it needs when that is full."""

SIGNATURE = {side: [{"name": "X", "datatype": "UINT8", "shape": [-1]}] for side in ("inputs", "outputs")}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    listeners = [
        {"listen": "127.0.0.1:0", "transport": transport, "max_request_bytes": 1 << 30}
        for transport in ("http", "tcp")
    ]
    models = {"m": {"backend": "identity", "signature": SIGNATURE}}
    server = {"workers": 0, "shutdown_timeout_secs": 2.0}
    daemon = Daemon.start(
        tmp_path_factory.mktemp("daemon"),
        {"server": server, "listeners": listeners, "models": models, "default_model": "m"},
    )
    try:
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if line["level"] == "error"]
    finally:
        daemon.kill()


@pytest.fixture
def little_memory(daemon: Daemon) -> Iterator[None]:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    size = int(status.split("VmSize:")[1].split()[0]) << 10
    before = resource.prlimit(daemon.process.pid, resource.RLIMIT_AS)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_AS, (size + SPARE_BYTES, before[1]))
    yield
    resource.prlimit(daemon.process.pid, resource.RLIMIT_AS, before)


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def exchange(address: str, head: bytes, size: int) -> bytes:
    """The answer to ``head`` and ``size`` bytes, or as many of them as precede it."""
    piece = bytes(MIB)
    with connect(address) as client:
        client.sendall(head)
        for _ in range(size // MIB):
            if select.select([client], [], [], 0)[0]:
                break
            client.sendall(piece)
        answer = b""
        while part := client.recv(1 << 16):
            answer += part
        return answer


def over_http(path: str, size: int, *, chunked: bool = False) -> bytes:
    header = json.dumps(
        {
            "inputs": [
                {"name": "X", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
            ]
        }
    ).encode()
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {len(header) + size}"
    head = (
        f"POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{framing}\r\n"
        f"inference-header-content-length: {len(header)}\r\n\r\n"
    ).encode()
    if chunked:
        return head + b"%x\r\n%s\r\n%x\r\n" % (len(header), header, size)
    return head + header


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("chunked", [False, True])
def test_over_http(daemon: Daemon, chunked: bool) -> None:
    size = 512 * MIB
    answer = exchange(daemon.addresses[0], over_http("/v2/models/m/infer", size, chunked=chunked), size)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 "), answer[:200]
    assert json.loads(body) == {"error": "no memory for the request body"}
    small = exchange(daemon.addresses[0], over_http("/v2/models/m/infer", 0), 0)
    assert small.startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("little_memory")
def test_over_tcp(daemon: Daemon) -> None:
    size = 512 * MIB
    answer = exchange(daemon.addresses[1], struct.pack("<I", size), size)
    assert struct.unpack_from("<I", answer)[0] == len(answer) - 4
    assert b"no memory for the message" in answer
