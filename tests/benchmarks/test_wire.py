"""The clients of the benchmark speak to real servers, and notice what is no answer."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from benchmarks import processes
from benchmarks.cases import CASES, OIP_METHOD
from benchmarks.wire import Http1, Http2

ROOT = Path(__file__).parents[2]


def order(folder: Path, transport: str, address: str, request: bytes) -> dict[str, Any]:
    (folder / "request").write_bytes(request)
    return {
        "transport": transport,
        "address": address,
        "method": OIP_METHOD,
        "request": str(folder / "request"),
        "clients": 3,
        "secs": 0.2,
    }


@pytest.mark.parametrize("size", [0, 1, 16_384, 3_000_000])
def test_calls_of_any_length_come_back_from_a_grpc_server(tmp_path: Path, size: int) -> None:
    message = bytes(index % 251 for index in range(size))
    with processes.floor("grpc") as server, processes.clients() as clients:
        head, body = clients.connect(order(tmp_path, "grpc", server.addresses["grpc"], message))
        assert (head, body == message) == ("", True)
        done = clients.go()
    assert done["count"] >= 6
    assert 0 < done["p50_ms"] <= done["p99_ms"]


def test_requests_come_back_from_an_http_server(tmp_path: Path) -> None:
    request, expected = CASES[2].request()
    with processes.floor("http") as server, processes.clients() as clients:
        head, body = clients.connect(order(tmp_path, "http", server.addresses["http"], request))
        assert head.startswith("HTTP/1.1 200")
        assert expected in body
        assert clients.go()["count"] >= 6


def test_a_call_that_fails_does_not_count_as_an_answer(tmp_path: Path) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        told = json.dumps(order(tmp_path, "grpc", f"127.0.0.1:{port}", b"x"))
        run = [sys.executable, "-m", "benchmarks.clients"]
        done = subprocess.run(run, cwd=ROOT, input=told, capture_output=True, text=True, timeout=60)
    finally:
        server.stop(None).wait()
    assert done.returncode == 1
    assert "its answer has no message" in done.stderr


def test_an_http_answer_may_come_in_any_pieces() -> None:
    wire = Http1(b"POST / HTTP/1.1\r\n\r\n")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    for _ in range(2):
        assert [wire.feed(answer[at : at + 1]) for at in range(len(answer))][-2:] == [None, b"abc"]
    assert wire.head == b"HTTP/1.1 200 OK\r\nContent-Length: 3"
    with pytest.raises(RuntimeError, match="the server answered"):
        wire.feed(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")


def test_an_http2_request_waits_for_the_window_of_the_server() -> None:
    def queued() -> bytes:
        found = b"".join(wire.outgoing)
        wire.outgoing.clear()
        return found

    wire = Http2("/service/method", bytes(100_000))
    queued()
    wire.begin()
    assert len(queued()) < 67_000
    # 40,000 more on the connection help nothing while the stream has none
    assert wire.feed(b"\0\0\4\x08\0\0\0\0\0" + struct.pack(">I", 40_000)) is None
    assert queued() == b""
    assert wire.feed(b"\0\0\4\x08\0\0\0\0\1" + struct.pack(">I", 40_000)) is None
    assert 34_470 < len(queued()) < 34_600
    with pytest.raises(RuntimeError, match="broke off"):
        wire.feed(b"\0\0\4\x03\0\0\0\0\1\0\0\0\x02")
