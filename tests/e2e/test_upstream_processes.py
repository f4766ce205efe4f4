"""A real server process behind unix sockets, killed, started again, stopped and continued, over every transport."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.daemon import Daemon

TRANSPORTS = {"http": "oip", "grpc": "oip", "brpc": "grps", "tcp": "graphpipe"}
PROBE_SECS = 0.5
TIMEOUT_SECS = 2.0
SLACK_SECS = 20.0
"""What a busy machine may add."""

IDENTITY = {
    "backend": "identity",
    "signature": {side: [{"name": "X", "datatype": "FP32", "shape": [-1]}] for side in ("inputs", "outputs")},
}


@dataclass
class World:
    """The daemon's address, and the server behind it."""

    url: str
    folder: Path
    server: Daemon

    def restart(self) -> None:
        self.server = serve(self.folder)

    def ask(self, model: str) -> int:
        """The status of an answer, which is right if it is 200 and comes in time."""
        began = time.monotonic()
        tensor = {"name": "X", "datatype": "FP32", "shape": [2], "data": [1.5, -2.0]}
        answer = requests.post(
            f"http://{self.url}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=60
        )
        assert time.monotonic() - began < TIMEOUT_SECS + SLACK_SECS
        if answer.status_code == 200:
            assert answer.json()["outputs"][0]["data"] == [1.5, -2.0]
        else:
            assert "upstream" in answer.json()["error"]
        return answer.status_code

    def ask_all(self) -> dict[str, int]:
        """The status of an answer of every model, asked at the same time."""
        with ThreadPoolExecutor(len(TRANSPORTS)) as threads:
            return dict(zip(TRANSPORTS, threads.map(self.ask, TRANSPORTS), strict=True))

    def until(self, model: str, status: int) -> float:
        """How long it takes until ``model`` is answered with ``status``."""
        began = time.monotonic()
        while self.ask(model) != status:
            assert time.monotonic() - began < PROBE_SECS + TIMEOUT_SECS + SLACK_SECS
            time.sleep(0.02)
        return time.monotonic() - began


def serve(folder: Path) -> Daemon:
    listeners = [{"listen": f"unix:{folder}/{each}.sock", "transport": each} for each in TRANSPORTS]
    config: dict[str, Any] = {
        # a signal stops all of it
        "server": {"workers": 0},
        "listeners": listeners,
        "models": {"same": IDENTITY},
        "default_model": "same",
    }
    return Daemon.start(folder, config)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    inner, outer = tmp_path / "in", tmp_path / "out"
    inner.mkdir()
    outer.mkdir()
    options = {"request_timeout_secs": TIMEOUT_SECS, "probe_interval_secs": PROBE_SECS}
    config = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "models": {
            name: {
                "upstream": name,
                "remote_model": "" if name == "tcp" else "same",
                "signature": IDENTITY["signature"],
            }
            for name in TRANSPORTS
        },
        "upstreams": {
            name: {"dialect": dialect, "transport": name, "urls": [f"unix:{inner}/{name}.sock"], **options}
            for name, dialect in TRANSPORTS.items()
        },
    }
    daemon = Daemon.start(outer, config)
    made = World(daemon.addresses[0], inner, serve(inner))
    try:
        yield made
        assert daemon.stop() == 0
    finally:
        daemon.kill()
        made.server.kill()


def test_a_process_that_comes_and_goes(world: World) -> None:
    assert world.ask_all() == dict.fromkeys(TRANSPORTS, 200)
    world.server.kill()
    assert world.ask_all() == dict.fromkeys(TRANSPORTS, 503)
    world.restart()
    back = {each: world.until(each, 200) for each in TRANSPORTS}
    assert max(back.values()) < PROBE_SECS + SLACK_SECS
    os.kill(world.server.process.pid, signal.SIGSTOP)
    try:
        assert world.ask_all() == dict.fromkeys(TRANSPORTS, 504)
    finally:
        os.kill(world.server.process.pid, signal.SIGCONT)
    assert max(world.until(each, 200) for each in TRANSPORTS) < PROBE_SECS + SLACK_SECS
