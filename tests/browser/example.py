"""A server with something of everything that the dashboard shows, and its traffic."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

from interlingua.schemas import Datatype
from tests.e2e.daemon import Daemon
from tests.ports import free_port
from tests.runtime.onnx_models import node, value, write

HOSTILE = "<img src=x onerror=alert(1)>"
SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}


PICTURE = {
    "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 32, 32]}],
    "outputs": [{"name": "picture", "datatype": "FP32", "shape": [-1, 3, 32, 32]}],
}

BATCHING = """
backend: "identity" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 3000 }
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
"""


def write_half(path: Path) -> Path:
    """A model that computes in FP16, so that it rounds."""
    nodes = [node("Cast", ["x"], ["half"], to=10), node("Cast", ["half"], ["y"], to=1)]
    shape = ["n", 2]
    return write(path, nodes, [value("x", Datatype.FP32, shape)], [value("y", Datatype.FP32, shape)])


def config(folder: Path, workers: int = 0, models: int = 0) -> dict[str, Any]:
    """A bridge that is one of its own upstreams, whose other server is not there. Files are in ``folder``."""
    port = free_port()
    ranker = folder / "repository/ranker"
    (ranker / "1").mkdir(parents=True, exist_ok=True)
    (ranker / "config.pbtxt").write_text(BATCHING)
    identity = {"backend": "identity", "signature": SIGNATURE}
    return {
        "server": {"name": "edge-1", "workers": workers, "access_log": "none"},
        "admin": {"listen": "127.0.0.1:0"},
        "listeners": [
            {"listen": f"127.0.0.1:{port}", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
        ],
        "upstreams": {
            "gpu-pool": {
                "dialect": "oip",
                "transport": "http",
                "urls": [f"127.0.0.1:{port}", "127.0.0.1:9"],
            }
        },
        "model_repository": [{"path": str(folder / "repository")}],
        "models": {
            "detector": identity,
            "detector-fp16": {"backend": "onnxruntime", "path": str(write_half(folder / "half.onnx"))},
            "embedder": {"upstream": "gpu-pool", "remote_model": "ranker", "signature": SIGNATURE},
            HOSTILE: identity,
            "painter": {"backend": "identity", "signature": PICTURE},
            **{f"model-{number:04d}": identity for number in range(models)},
        },
        "routes": [
            {"match": {"model": "search"}, "split": [{"to": "ranker", "weight": 3}, {"to": "embedder"}]},
            {"match": {"model": "vision"}, "to": "detector", "mirror": {"to": "detector-fp16"}},
        ],
    }


class Traffic:
    """Requests in several dialects until the end of the block."""

    def __init__(self, daemon: Daemon, pause_secs: float = 0.08) -> None:
        self._url = f"http://{daemon.addresses[0]}"
        self._pause = pause_secs
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def __enter__(self) -> Traffic:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    def _run(self) -> None:
        session, number = requests.Session(), 0
        while not self._stop.wait(self._pause):
            number += 1
            # the load goes up and down
            if number % 100 > 55 + 30 * (time.time() % 20 > 10):
                continue
            self.send(session, ("search", "search", "vision", "ranker")[number % 4], number % 3 + 1)
            if number % 40 == 0:
                self.send(session, "absent")
            if number % 60 == 0:
                self.send(session, HOSTILE, columns=3)

    def send(self, session: requests.Session, model: str, rows: int = 1, columns: int = 2) -> None:
        data = [random.gauss(0, 1) for _ in range(rows * columns)]
        tensor = {"name": "x", "datatype": "FP32", "shape": [rows, columns], "data": data}
        headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
        # this machine may be busy for longer than a connection stays open
        with suppress(requests.ConnectionError):
            session.post(f"{self._url}/v2/models/{model}/infer", json={"inputs": [tensor]}, headers=headers)
