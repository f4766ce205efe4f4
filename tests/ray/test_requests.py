"""Requests to replicas: every dialect, errors, streams, sequences, cancellation, overload, changed files. One
local cluster, two replicas for each model: the short form runs it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.e2e.daemon import ROOT, Daemon
from tests.ray.cluster import daemon_on, replicas, until_ready
from tests.ray.models import write_model
from tests.waiting import eventually

_SMALL = {"resources": {"cpus": 0.1}}
OPTIONS: dict[str, dict[str, Any]] = {
    "slow": {"replicas": 2, "max_ongoing_requests": 1, "max_queued_requests": 2},
    "sums": {"replicas": 2},
    "stream": {},
    "failing": {},
    "version": {"replicas": 2},
    "turned": {},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requests")


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Daemon]:
    models: dict[str, Any] = {
        name: {"backend": "ray", "path": str(write_model(folder, name)), **_SMALL, **options}
        for name, options in OPTIONS.items()
    }
    for name in ("digits", "identity_fp32"):
        path = f"examples/models/{name}"
        models[f"{name}_here"] = {"backend": "onnxruntime", "path": path}
        models[name] = {"backend": "ray", "path": path, **_SMALL}
    with daemon_on(folder, "local", models, default_model="digits") as running:
        yield running


def infer(daemon: Daemon, model: str, value: float, **options: Any) -> Any:
    with triton_http.InferenceServerClient(daemon.addresses[0]) as client:
        tensor = triton_http.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.array([value], np.float32))
        return client.infer(model, [tensor], **options)


IMAGES = np.random.default_rng(7).random((3, 64), dtype=np.float32)


@pytest.mark.parametrize(
    ("transport", "dialect"),
    [
        ("http", "oip"),
        ("grpc", "oip"),
        ("http", "trtis"),
        ("grpc", "trtis"),
        ("http", "graphpipe"),
        ("http", "grps"),
        ("grpc", "grps"),
        ("brpc", "grps"),
        ("http", "tfserving"),
        ("grpc", "tfserving"),
    ],
)
def test_every_dialect_gets_the_answer_of_the_model_here(
    daemon: Daemon, tmp_path: Path, transport: str, dialect: str
) -> None:
    """Bit for bit, by the commands of a client of the dialect."""
    np.save(tmp_path / "image.npy", IMAGES)
    found = {}
    for model in ("digits", "digits_here"):
        out = tmp_path / f"{model}.npz"
        command = [sys.executable, "-m", "interlingua", "infer", "--url", daemon.addresses[0]]
        command += ["--dialect", dialect, "--transport", transport, "--model", model]
        command += ["--input", f"image=@{tmp_path}/image.npy", "--npz", str(out)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        with np.load(out) as outputs:
            found[model] = {name: outputs[name].tobytes() for name in outputs}
    assert found["digits"] == found["digits_here"]
    assert found["digits"]


@pytest.mark.parametrize("count", [16, 1 << 14, (1 << 14) + 1, 1 << 20])
def test_tensors_of_every_size_cross_unchanged(daemon: Daemon, count: int) -> None:
    sent = np.random.default_rng(count).random(count, dtype=np.float32)
    with triton_http.InferenceServerClient(daemon.addresses[0]) as client:
        tensor = triton_http.InferInput("INPUT0", [count], "FP32")
        tensor.set_data_from_numpy(sent)
        assert client.infer("identity_fp32", [tensor]).as_numpy("OUTPUT0").tobytes() == sent.tobytes()


@pytest.mark.parametrize("shape", [(0, 3), (2, 3), (200, 300)])
def test_empty_turned_and_text_tensors_cross_unchanged(daemon: Daemon, shape: tuple[int, int]) -> None:
    """The model answers with a transposed array, which is not contiguous."""
    sent = np.random.default_rng(1).random(shape, dtype=np.float32)
    text = np.array([b"", b"\x00\xff", b"x" * 100_000][: shape[0]], dtype=np.object_)
    inputs = [
        triton_http.InferInput("IN", shape, "FP32"),
        triton_http.InferInput("TEXT", text.shape, "BYTES"),
    ]
    for tensor, array in zip(inputs, (sent, text), strict=True):
        tensor.set_data_from_numpy(array)
    with triton_http.InferenceServerClient(daemon.addresses[0]) as client:
        answer = client.infer("turned", inputs)
    assert answer.as_numpy("OUT").tolist() == sent.T.tolist()
    assert answer.as_numpy("OUT").shape == sent.T.shape
    assert answer.as_numpy("OUT_TEXT").tolist() == text.tolist()


def test_an_error_of_the_model_keeps_its_text(daemon: Daemon) -> None:
    with pytest.raises(InferenceServerException, match="not today") as there:
        infer(daemon, "failing", 1)
    assert there.value.status() == "500"


def test_a_request_that_does_not_fit_is_refused_here(daemon: Daemon) -> None:
    with triton_http.InferenceServerClient(daemon.addresses[0]) as client:
        tensor = triton_http.InferInput("WRONG", [1], "FP32")
        tensor.set_data_from_numpy(np.zeros(1, np.float32))
        with pytest.raises(InferenceServerException, match="unexpected inference input 'WRONG'"):
            client.infer("slow", [tensor])


def test_answers_of_a_stream_come_as_they_are_made(daemon: Daemon) -> None:
    answers: queue.Queue[tuple[float, Any, Any]] = queue.Queue()
    with triton_grpc.InferenceServerClient(daemon.addresses[0]) as client:
        client.start_stream(lambda result, error: answers.put((time.monotonic(), result, error)))
        tensor = triton_grpc.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.array([5], np.float32))
        client.async_stream_infer("stream", [tensor])
        found = [answers.get(timeout=20) for _ in range(5)]
        client.stop_stream()
    assert [error for _, _, error in found] == [None] * 5
    assert [result.as_numpy("OUT")[0] for _, result, _ in found] == [0, 1, 2, 3, 4]
    # the model waits before the fourth
    assert found[3][0] - found[2][0] > 0.1


def test_a_sequence_stays_at_one_replica(daemon: Daemon) -> None:
    def run(key: int) -> int:
        processes = set()
        for number in range(6):
            answer = infer(
                daemon,
                "sums",
                number,
                sequence_id=key,
                sequence_start=number == 0,
                sequence_end=number == 5,
            )
            assert answer.as_numpy("OUT")[0] == sum(range(number + 1))
            processes.add(int(answer.as_numpy("PROCESS")[0]))
        (process,) = processes
        return process

    with ThreadPoolExecutor(8) as pool:
        used = Counter(pool.map(run, range(1, 25)))
    assert len(used) == 2, "both replicas had sequences"


def test_a_sequence_whose_replica_ends_is_refused_until_it_starts_again(daemon: Daemon) -> None:
    infer(daemon, "sums", 1, sequence_id=99, sequence_start=True)
    before = replicas(daemon, "sums")
    assert len(before) == 2
    for each in before:
        os.kill(each["process"], signal.SIGKILL)
    refusals = []

    def refused() -> bool:
        try:
            infer(daemon, "sums", 2, sequence_id=99)
        except InferenceServerException as error:
            refusals.append((error.status(), error.message()))
            return True
        return False

    assert refused(), "its state has ended with the replica"
    known = {each["replica"] for each in before}
    eventually(lambda: len([each for each in replicas(daemon, "sums") if each["replica"] not in known]) == 2)
    assert refused()
    assert all(status in ("400", "503") for status, _ in refusals), refusals
    answer = infer(daemon, "sums", 5, sequence_id=99, sequence_start=True)
    assert answer.as_numpy("OUT")[0] == 5
    infer(daemon, "sums", 0, sequence_id=99, sequence_end=True)


def test_overload_is_refused_as_everywhere(daemon: Daemon) -> None:
    """Two replicas run one request each, and two wait."""
    codes: Counter[int] = Counter()
    lock = threading.Lock()

    def send() -> None:
        body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [0.5]}]}
        url = f"http://{daemon.addresses[0]}/v2/models/slow/infer"
        answer = requests.post(url, json=body, timeout=60)
        with lock:
            codes[answer.status_code] += 1
            if answer.status_code == 429:
                assert "Exceeds maximum queue size" in answer.text
                assert "Retry-After" in answer.headers

    threads = [threading.Thread(target=send) for _ in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(codes) == {200, 429}
    assert codes[200] >= 2


def test_a_deadline_ends_the_wait(daemon: Daemon) -> None:
    began = time.monotonic()
    with triton_grpc.InferenceServerClient(daemon.addresses[0]) as client:
        tensor = triton_grpc.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.array([5], np.float32))
        with pytest.raises(
            InferenceServerException, match="Deadline Exceeded|DEADLINE_EXCEEDED|before the deadline"
        ):
            client.infer("slow", [tensor], client_timeout=0.5)
    assert time.monotonic() - began < 4


def test_changed_files_are_served_without_a_failed_request(daemon: Daemon, folder: Path) -> None:
    assert infer(daemon, "version", 0).as_numpy("OUT")[0] == 1
    stop, failures, seen = threading.Event(), [], Counter()

    def client() -> None:
        while not stop.is_set():
            try:
                seen[int(infer(daemon, "version", 0).as_numpy("OUT")[0])] += 1
            except InferenceServerException as error:
                failures.append(error)

    threads = [threading.Thread(target=client) for _ in range(3)]
    for each in threads:
        each.start()
    eventually(lambda: len(replicas(daemon, "version")) == 2)
    before = {each["replica"] for each in replicas(daemon, "version")}
    try:
        write_model(folder, "version", 2)
        eventually(lambda: seen[2] > 20)
    finally:
        stop.set()
        for each in threads:
            each.join()
    assert failures == []
    assert seen[1] > 0
    # no replica has been started for it
    eventually(lambda: {each["replica"] for each in replicas(daemon, "version")} == before)
    until_ready(daemon, "version")


def test_the_report_and_the_metrics_have_nodes_and_replicas(daemon: Daemon) -> None:
    report = requests.get(f"{daemon.admin}/ray", timeout=10).json()
    assert report["connected"]
    assert [node["alive"] for node in report["nodes"]] == [True]
    assert report["models"]["digits"]["ready"]
    assert len(replicas(daemon, "digits")) == 1
    metrics = requests.get(f"{daemon.admin}/metrics", timeout=10).text
    assert 'interlingua_ray_replicas{model="digits",state="RUNNING"} 1' in metrics
    assert 'nv_inference_request_success{model="identity_fp32",version="1"}' in metrics
    assert "Ray: 1 nodes" in requests.get(f"{daemon.admin}/plain", timeout=10).text
