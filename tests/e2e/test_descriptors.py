"""Clients that open connections until the daemon has few file descriptors left: it keeps the rest for itself."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from benchmarks.bridging.requests import request
from benchmarks.cases import CONFIG
from tests.e2e.daemon import Daemon

DESCRIPTORS = 300
CLIENTS = 400


@contextlib.contextmanager
def few_descriptors() -> Iterator[None]:
    """Processes that start meanwhile may open ``DESCRIPTORS`` files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(metrics: str) -> float:
    used = next(line for line in metrics.splitlines() if line.startswith("process_open_fds"))
    return float(used.split()[1])


def until_full(url: str, wanted: list[str]) -> str:
    """Wait until the daemon has accepted as many connections as it can; its metrics, which contain ``wanted``.
    The kernel completes connections before the daemon accepts them."""
    deadline = time.monotonic() + 20
    while True:
        metrics = requests.get(url, timeout=10).text
        if open_files(metrics) > DESCRIPTORS / 2 and all(part in metrics for part in wanted):
            return metrics
        assert time.monotonic() < deadline, metrics
        time.sleep(0.05)


def until_accepted(url: str) -> None:
    """Wait until the daemon has noticed that clients have left."""
    deadline = time.monotonic() + 20
    while True:
        try:
            assert requests.get(url, timeout=10).status_code == 200
            return
        except requests.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("transport", "engine"), [("http", "native"), ("http", "library"), ("grpc", "library")]
)
def test_the_admin_address_answers(tmp_path: Path, transport: str, engine: str) -> None:
    listeners = [{"listen": "127.0.0.1:0", "transport": transport, "engine": engine}]
    config = {"listeners": listeners, "models": CONFIG["models"], "admin": {"listen": "127.0.0.1:0"}}
    with few_descriptors():
        daemon = Daemon.begin(tmp_path, config)
    try:
        daemon.until("serving")
        admin = f"http://{daemon.until('admin listening')['address']}"
        address = daemon.until("listening")["address"]
        host, _, port = address.rpartition(":")
        with contextlib.ExitStack() as closing, requests.Session() as early:
            if transport == "http":
                assert early.get(f"http://{address}/v2/health/live", timeout=10).status_code == 200
            for _ in range(CLIENTS):
                closing.enter_context(socket.create_connection((host, int(port)), timeout=10))
            for _ in range(3):
                assert requests.get(f"{admin}/health/live", timeout=10).status_code == 200
            refusals = ['reason="descriptors"'] if transport == "http" else []
            metrics = until_full(f"{admin}/metrics", refusals)
            assert DESCRIPTORS / 2 < open_files(metrics) < DESCRIPTORS - 30
            if transport == "http":
                sent = request("oip", "http", 64)
                url = f"http://{address}{sent.path}"
                assert early.post(url, data=sent.body, headers=sent.headers, timeout=10).status_code == 200
                daemon.until("listener overloaded")
                found = [line for line in daemon.log if line["event"] == "listener overloaded"]
                assert [line["reason"] for line in found] == ["descriptors"]
        if transport == "http":
            until_accepted(f"http://{address}/v2/health/live")
        assert daemon.stop() == 0
    finally:
        daemon.kill()
