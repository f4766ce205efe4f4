"""What a request costs on Ray: ``python -m benchmarks.ray [--quick] [--json] [--step]`` (make bench-ray).

Milliseconds per request of one client that sends the next after the answer, and CPU of every process, for
the identity of 64 B and 4 MiB: over the daemon to a model here, over the daemon to a replica, and over the
HTTP proxy of Serve to the same replica, in turns of one run. Then requests per second of 1 to 4 replicas
whose model waits 20 ms. ``--step`` draws the replicas under a step of load: docs/plots/ray-replicas.svg.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import requests
import yaml

from benchmarks.ray_plot import svg
from interlingua.runtime.ray_serve.options import ClusterOptions
from interlingua.runtime.ray_serve.start import environment

ROOT = Path(__file__).parent.parent
PLOT = ROOT / "docs" / "plots" / "ray-replicas.svg"
TARGET = 0.7
"""A request through the daemon takes so much of one through Serve's proxy, at most."""

SIZES = {"64 B": 64, "4 MiB": 4 << 20}
HERE, ON_RAY, PROXY = "daemon, here", "daemon, on Ray", "Serve's proxy"
WAIT_SECS = 0.02

WAITING = f"""
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        time.sleep({WAIT_SECS})
        return [pb.InferenceResponse([pb.Tensor("OUT", pb.get_input_tensor_by_name(each, "IN").as_numpy())])
                for each in requests]
"""
WAITING_CONFIG = (
    'backend: "python" input { name: "IN" data_type: TYPE_INT32 dims: 1 } '
    'output { name: "OUT" data_type: TYPE_INT32 dims: 1 }'
)


@dataclass(frozen=True)
class Cost:
    """Medians over the turns."""

    size: str
    path: str
    ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Scale:
    """Requests per second of ``replicas`` with ``clients``, and CPU of a request in the daemon."""

    replicas: int
    clients: int
    per_sec: float
    p50_ms: float
    daemon_cpu_ms: float


@contextlib.contextmanager
def cluster(cpus: int, proxy: bool) -> Iterator[int]:
    """A Ray cluster of this process; the port of Serve's proxy, 0 without."""
    os.environ.update(environment(ClusterOptions()))
    import ray
    from ray import serve

    store = 400 << 20
    ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=store, log_to_driver=False)
    port = 0
    if proxy:
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    try:
        yield port
    finally:
        ray.shutdown()


@contextlib.contextmanager
def daemon(folder: Path, models: dict[str, Any]) -> Iterator[tuple[str, str, psutil.Process]]:
    """A daemon on the cluster: its address, its admin address, its process."""
    config = {
        "server": {"drain_secs": 0, "log_format": "json"},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0"},
        "ray": {"address": "auto"},
        "models": models,
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "benchmarks.ray_daemon", str(file)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    addresses: dict[str, str] = {}
    assert process.stderr is not None
    for line in process.stderr:
        event = json.loads(line) if line.startswith("{") else {}
        if "listening" in event.get("event", ""):
            addresses[event["event"]] = event["address"]
        if event.get("level") == "error":
            print(line, file=sys.stderr)
        if event.get("event") == "serving":
            break
    threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        yield addresses["listening"], addresses["admin listening"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def binary(model: str, tensor: str, datatype: str, data: bytes, shape: Sequence[int]) -> Callable[..., bytes]:
    """A request of the Open Inference Protocol with binary tensors; sends it over a connection."""
    inputs = [{"name": tensor, "datatype": datatype, "shape": shape}]
    inputs[0]["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}

    def send(connection: http.client.HTTPConnection) -> bytes:
        connection.request("POST", f"/v2/models/{model}/infer", head + data, headers)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body[:500]
        return body[int(response.headers["Inference-Header-Content-Length"]) :]

    return send


def raw(path: str, data: bytes) -> Callable[..., bytes]:
    def send(connection: http.client.HTTPConnection) -> bytes:
        connection.request("POST", path, data)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body[:500]
        return body

    return send


def cpu_secs(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in processes if each.is_running())


def costs(quick: bool) -> Iterator[Cost]:
    """Of every size and path, in turns."""
    identity = "examples/models/identity_fp32"
    models = {
        "here": {"backend": "onnxruntime", "path": identity},
        "there": {"backend": "ray", "path": identity, "resources": {"cpus": 1}},
    }
    turns = 3 if quick else 7
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port = stack.enter_context(cluster(2, True))
        address, _, _ = stack.enter_context(daemon(Path(folder), models))
        everything = list(psutil.Process().children(recursive=True))
        for size, nbytes in SIZES.items():
            count = (100 if nbytes < 1 << 20 else 8) if quick else (300 if nbytes < 1 << 20 else 20)
            data = np.random.default_rng(1).random(nbytes // 4, dtype=np.float32).tobytes()
            shape = [nbytes // 4]
            ways = {
                HERE: (address, binary("here", "INPUT0", "FP32", data, shape)),
                ON_RAY: (address, binary("there", "INPUT0", "FP32", data, shape)),
                PROXY: (f"127.0.0.1:{port}", raw("/interlingua.there", data)),
            }
            connections = {way: http.client.HTTPConnection(to) for way, (to, _) in ways.items()}
            for way, (_, send) in ways.items():
                assert send(connections[way]) == data, way
            taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for _ in range(turns):
                for way, (_, send) in ways.items():
                    cpu, began = cpu_secs(everything), time.perf_counter()
                    for _ in range(count):
                        send(connections[way])
                    secs = time.perf_counter() - began
                    taken[way].append((secs / count, (cpu_secs(everything) - cpu) / count))
            for way, found in taken.items():
                ms, cpu_ms = (statistics.median(column) * 1e3 for column in zip(*found, strict=True))
                yield Cost(size, way, round(ms, 3), round(cpu_ms, 3))


def waiting(folder: Path) -> Path:
    """The folder of a model that waits."""
    (folder / "waiting" / "1").mkdir(parents=True)
    (folder / "waiting" / "config.pbtxt").write_text(WAITING_CONFIG)
    (folder / "waiting" / "1" / "model.py").write_text(WAITING)
    return folder / "waiting"


@contextlib.contextmanager
def load(address: str, clients: int, latencies: list[float], failures: list[str]) -> Iterator[None]:
    """So many clients that send one request after another to the model that waits."""
    send = binary("waiting", "IN", "INT32", np.array([7], np.int32).tobytes(), [1])
    stop = threading.Event()

    def client() -> None:
        connection = http.client.HTTPConnection(address, timeout=60)
        while not stop.is_set():
            began = time.perf_counter()
            try:
                send(connection)
                latencies.append(time.perf_counter() - began)
            except (AssertionError, OSError, http.client.HTTPException) as error:
                failures.append(str(error))
                connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in threads:
            each.join()


def scales(quick: bool) -> Iterator[Scale]:
    """Of 1, 2 and 4 replicas, each with four clients."""
    secs = 3.0 if quick else 8.0
    with tempfile.TemporaryDirectory() as folder, cluster(8, False):
        path = waiting(Path(folder))
        for replicas in (1, 2, 3, 4):
            model = {"backend": "ray", "path": str(path), "replicas": replicas, "resources": {"cpus": 1}}
            with daemon(Path(folder), {"waiting": model}) as (address, admin, process):
                while len(running(admin)) < replicas:
                    time.sleep(0.2)
                latencies: list[float] = []
                failures: list[str] = []
                clients = 4 * replicas
                with load(address, clients, latencies, failures):
                    time.sleep(1)
                    latencies.clear()
                    cpu, began = cpu_secs([process]), time.perf_counter()
                    time.sleep(secs)
                    count, taken = len(latencies), time.perf_counter() - began
                    cpu = cpu_secs([process]) - cpu
                assert not failures, failures[:3]
                p50 = statistics.median(latencies) * 1e3
                yield Scale(
                    replicas, clients, round(count / taken, 1), round(p50, 1), round(cpu / count * 1e3, 2)
                )


def running(admin: str) -> list[Any]:
    """The replicas of the waiting model that run."""
    report = requests.get(f"http://{admin}/ray", timeout=30).json()
    found = report["models"]["waiting"]["replicas"]
    return [each for each in found if each["state"] == "RUNNING"]


def step() -> list[tuple[float, int, int]]:
    """Seconds, clients and replicas: one client, then twelve, then one again."""
    scaling = {
        "min": 1,
        "max": 4,
        "target_ongoing": 3,
        "up_delay_secs": 2,
        "down_delay_secs": 10,
        "window_secs": 5,
    }
    found: list[tuple[float, int, int]] = []
    with tempfile.TemporaryDirectory() as folder, cluster(8, False):
        model = {"backend": "ray", "path": str(waiting(Path(folder))), "replicas": scaling}
        with daemon(Path(folder), {"waiting": model}) as (address, admin, _):
            began = time.monotonic()
            failures: list[str] = []
            for clients, secs in ((1, 10), (12, 45), (1, 45)):
                end = time.monotonic() + secs
                with load(address, clients, [], failures):
                    while time.monotonic() < end:
                        found.append((time.monotonic() - began, clients, len(running(admin))))
                        time.sleep(0.5)
            assert not failures, failures[:3]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--step", action="store_true", help="draw the replicas under a step of load")
    arguments = parser.parse_args()
    if arguments.step:
        points = step()
        PLOT.write_text(svg(points))
        print(f"1 -> {max(each[2] for each in points)} -> {points[-1][2]} replicas: {PLOT}")
        return 0
    found = list(costs(arguments.quick))
    scaled = list(scales(arguments.quick))
    ratios = {
        size: next(each.ms for each in found if (each.size, each.path) == (size, ON_RAY))
        / next(each.ms for each in found if (each.size, each.path) == (size, PROXY))
        for size in SIZES
    }
    if arguments.json:
        rows = {"costs": [*map(asdict, found)], "scales": [*map(asdict, scaled)]}
        print(json.dumps({**rows, "ratios": ratios}))
        return 0
    print("| request | path | ms | CPU ms |\n|---|---|---|---|")
    for each in found:
        print(f"| {each.size} | {each.path} | {each.ms:.2f} | {each.cpu_ms:.2f} |")
    for size, ratio in ratios.items():
        print(f"\n{size}: {ratio:.2f} of Serve's proxy (target: at most {TARGET})")
    print("\n| replicas | clients | requests/s | p50 ms | CPU ms in the daemon |\n|---|---|---|---|---|")
    for row in scaled:
        print(f"| {row.replicas} | {row.clients} | {row.per_sec} | {row.p50_ms} | {row.daemon_cpu_ms} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
