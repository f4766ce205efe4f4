"""Models that are loaded, unloaded and loaded again while clients ask for them, over HTTP and gRPC.

``SOAK_ROUNDS`` says how often (``make soak``); the default is enough to see a leak that every round has.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from interlingua.schemas import Datatype
from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import refused
from tests.runtime.onnx_models import node, value, write
from tests.standins.trtis_http_client import TrtisHttp
from tests.waiting import eventually

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "8"))
FIRST_ROUNDS = max(3, ROUNDS // 5)
"""What is taken in these rounds may stay."""

EXECUTOR_THREADS = 4 + (os.cpu_count() or 1)
"""asyncio's own for blocking work, which come with the first need and stay."""

ALLOWED_MEBIBYTES = 5
"""What the allocator may keep for itself; a hundred rounds in which models are kept take more."""

PYTHON = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", SIGN * array)]) for array in arrays]
"""
CONFIG = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
instance_group { count: 2 }
"""
MODELS = {
    "plain": 'platform: "onnxruntime_onnx"' + CONFIG,
    "batched": 'platform: "onnxruntime_onnx" dynamic_batching { max_queue_delay_microseconds: 500 }' + CONFIG,
    "python": 'backend: "python"' + CONFIG.replace("count: 2", "count: 1"),
    "fleeting": 'platform: "onnxruntime_onnx"' + CONFIG,
}
CHAIN = (
    'platform: "ensemble"'
    + CONFIG.replace("instance_group { count: 2 }", "")
    + """ensemble_scheduling { step [
  { model_name: "plain" input_map { key: "x" value: "x" } output_map { key: "y" value: "t" } },
  { model_name: "python" input_map { key: "x" value: "t" } output_map { key: "y" value: "y" } }
] }"""
)
FLEETING = "fleeting"
"""The model that is unloaded, too, so that it may not be there."""


def write_model(repository: Path, name: str, sign: int) -> None:
    """A model whose ``y`` is ``x`` times ``sign``, put in the place of an earlier one at once."""
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    config = repository / name / "config.pbtxt"
    if not config.exists():
        config.write_text(MODELS[name])
    if name == "python":
        (version / ".new").write_text(PYTHON.replace("SIGN", str(sign)))
        (version / ".new").rename(version / "model.py")
        return
    x, y = (value(name, Datatype.FP32, ["n", 3]) for name in "xy")
    write(version / ".new", [node("Identity" if sign > 0 else "Neg", ["x"], ["y"])], [x], [y])
    (version / ".new").rename(version / "model.onnx")


# --- clients


def http_client(address: str) -> Callable[[str, np.ndarray], np.ndarray | None]:
    """Asks a model over HTTP; None for one that is not there."""
    session = requests.Session()

    def ask(model: str, x: np.ndarray) -> np.ndarray | None:
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.tolist()}]}
        answer = session.post(f"http://{address}/v2/models/{model}/infer", json=body, timeout=30)
        if answer.status_code == 404 and "unknown model" in answer.text:
            return None
        assert answer.status_code == 200, answer.text
        (output,) = answer.json()["outputs"]
        return np.array(output["data"], np.float32).reshape(output["shape"])

    return ask


def grpc_client(address: str) -> Callable[[str, np.ndarray], np.ndarray | None]:
    """The same over gRPC."""
    client = triton_grpc.InferenceServerClient(address)

    def ask(model: str, x: np.ndarray) -> np.ndarray | None:
        given = triton_grpc.InferInput("x", x.shape, "FP32")
        given.set_data_from_numpy(x)
        try:
            return client.infer(model, [given], client_timeout=30).as_numpy("y")
        except InferenceServerException as error:
            if error.status() == "StatusCode.NOT_FOUND" and "unknown model" in error.message():
                return None
            raise

    return ask


@dataclass
class Traffic:
    """Threads that ask for everything all the time. ``failures`` should stay empty."""

    models: tuple[str, ...]
    asked: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def ask(self, client: Callable[[str, np.ndarray], np.ndarray | None], seed: int) -> None:
        chance = random.Random(seed)
        while not self.stop.is_set():
            model = chance.choice(self.models)
            x = np.array([[chance.randrange(1, 1000) for _ in range(3)]] * chance.randrange(1, 4), np.float32)
            try:
                y = client(model, x)
            except Exception as error:
                self.failures.append(f"{model}: {error!r}")
                continue
            self.asked[model] += y is not None
            if y is None and model != FLEETING:
                self.failures.append(f"{model} was not found")
            elif y is not None and not (np.array_equal(y, x) or np.array_equal(y, -x)):
                self.failures.append(f"{model}: {y} is no answer to {x}")


@contextlib.contextmanager
def traffic(daemon: Daemon, *models: str) -> Iterator[Traffic]:
    """Traffic over both transports for as long as the block runs."""
    running = Traffic(models)
    makers = (http_client, grpc_client) * 2
    threads = [
        threading.Thread(target=running.ask, args=(make(daemon.addresses[index % 2]), index))
        for index, make in enumerate(makers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield running
    finally:
        running.stop.set()
        for thread in threads:
            thread.join()


# --- what the process has


@dataclass(frozen=True)
class Held:
    """What a process has at one time."""

    threads: int
    files: int
    children: int
    mebibytes: float


def held(daemon: Daemon) -> Held:
    """What the daemon has, with all that it has started; of the memory, what is resident in itself."""
    proc = Path("/proc") / str(daemon.process.pid)
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    tasks, children = 0, 0
    for task in (proc / "task").iterdir():
        # a thread may end meanwhile
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += len((task / "children").read_text().split())
            tasks += 1
    return Held(
        tasks,
        len(list((proc / "fd").iterdir())),
        children,
        int(status["VmRSS"].split()[0]) / 1024,
    )


def calm(daemon: Daemon, url: str) -> Held:
    """What it has when every model that was unloaded or replaced has been freed."""
    before = held(daemon)
    deadline = time.monotonic() + 30
    while True:
        time.sleep(0.5)
        now = held(daemon)
        index = requests.post(f"{url}/v2/repository/index", timeout=10).json()
        quiet = all(each.get("state") != "UNLOADING" for each in index)
        if (
            quiet
            and (now.threads, now.files, now.children) == (before.threads, before.files, before.children)
        ) or (time.monotonic() > deadline):
            return now
        before = now


def test_nothing_fails_and_nothing_is_left(tmp_path: Path) -> None:
    for name in MODELS:
        write_model(tmp_path / "models", name, 1)
    (tmp_path / "models" / "chain" / "1").mkdir(parents=True)
    (tmp_path / "models" / "chain" / "config.pbtxt").write_text(CHAIN)
    daemon = Daemon.start(tmp_path, served(tmp_path / "models", control="explicit"))
    url = f"http://{daemon.addresses[0]}"

    def act(model: str, what: str) -> None:
        answer = requests.post(f"{url}/v2/repository/models/{model}/{what}", timeout=60)
        assert answer.status_code == 200, answer.text

    first = None
    try:
        with traffic(daemon, *MODELS, "chain") as running:
            for turn in range(ROUNDS):
                for name in MODELS:
                    write_model(tmp_path / "models", name, 1 if turn % 2 else -1)
                    act(name, "load")
                act(FLEETING, "unload")
                act("chain", "load")
                act(FLEETING, "load")
                if turn + 1 == FIRST_ROUNDS:
                    first = calm(daemon, url)
            last = calm(daemon, url)
        assert not running.failures, running.failures[:5]
        assert set(running.asked) == {*MODELS, "chain"}
        print(f"{ROUNDS} rounds, {running.asked.total()} requests: {first} -> {last}")
        assert first is not None
        assert last.children == first.children
        assert last.files <= first.files + 4, "no more than a connection or two"
        assert last.threads <= first.threads + EXECUTOR_THREADS
        assert last.mebibytes <= first.mebibytes + ALLOWED_MEBIBYTES
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if line["level"] in ("error", "critical")]
    finally:
        daemon.kill()


def served(repository: Path, **options: object) -> dict[str, object]:
    """The configuration of a daemon with one repository."""
    return {
        "server": {"repository_poll_secs": 0.1},
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
        ],
        "model_repository": [{"path": str(repository), **options}],
    }


def test_models_follow_their_files(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_model(repository, "plain", 1)
    daemon = Daemon.start(tmp_path, served(repository, control="poll"))
    url = f"http://{daemon.addresses[0]}"
    ask = http_client(daemon.addresses[0])
    ones = np.ones((1, 3), np.float32)

    def answers(model: str) -> float | None:
        y = ask(model, ones)
        return None if y is None else float(y[0, 0])

    def ready() -> bool:
        return requests.get(f"{url}/v2/health/ready", timeout=10).status_code == 200

    def index() -> dict[str, tuple[str, str]]:
        told = requests.post(f"{url}/v2/repository/index", timeout=10).json()
        return {each["name"]: (each.get("state", ""), each.get("reason", "")) for each in told}

    try:
        with traffic(daemon, "plain") as running:
            write_model(repository, "plain", -1)
            eventually(lambda: answers("plain") == -1)
            write_model(repository, "python", 1)
            eventually(lambda: answers("python") == 1)
            (repository / "plain" / "1" / "model.onnx").write_bytes(b"broken")
            eventually(lambda: index()["plain"][1].startswith("not loaded again: "))
            assert (answers("plain"), index()["plain"][0], ready()) == (-1, "READY", True)
            write_model(repository, "plain", 1)
            eventually(lambda: answers("plain") == 1)
            assert index()["plain"] == ("READY", "")
        assert not running.failures, running.failures[:5]

        (repository / "bad" / "1").mkdir(parents=True)
        eventually(lambda: index().get("bad", ("", "no"))[1] != "no" and not ready())
        shutil.rmtree(repository / "bad")
        eventually(ready)
        for name in ("plain", "python"):
            shutil.rmtree(repository / name)
        eventually(lambda: answers("plain") is None and answers("python") is None and index() == {})
        assert not ready(), "a server without a model"

        said = "explicit model load / unload is not allowed if polling is enabled"
        for what in ("load", "unload"):
            answer = requests.post(f"{url}/v2/repository/models/plain/{what}", timeout=10)
            assert answer.status_code == 503
            assert answer.json()["error"].startswith(said)
            with refused("UNAVAILABLE", said):
                getattr(TrtisHttp(daemon.addresses[0]), what)("plain")
        assert daemon.stop() == 0
        failures = [line for line in daemon.log if line["level"] == "error"]
        assert [line["model"] for line in failures] == ["plain", "bad"], "each is told once"
    finally:
        daemon.kill()


@pytest.mark.parametrize(("options", "status"), [({}, 400), ({"ready_when_empty": True}, 200)])
def test_whether_a_server_without_models_is_ready(tmp_path: Path, options: dict, status: int) -> None:
    (tmp_path / "models").mkdir()
    config = served(tmp_path / "models")
    daemon = Daemon.start(tmp_path, {**config, "server": options})
    try:
        url = f"http://{daemon.addresses[0]}"
        assert requests.get(f"{url}/v2/health/ready", timeout=10).status_code == status
        assert requests.get(f"{url}/v2/health/live", timeout=10).status_code == 200
        assert daemon.stop() == 0
    finally:
        daemon.kill()
