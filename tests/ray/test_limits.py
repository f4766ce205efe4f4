"""Requests that are refused, cancelled or too late, and sequences at a busy replica. One local cluster, one replica
for each model."""

from __future__ import annotations

import json
import queue
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.e2e.daemon import Daemon
from tests.ray.cluster import daemon_on
from tests.ray.models import write_model
from tests.waiting import eventually

IDENTITY = "examples/models/identity_fp32"
OPTIONS: dict[str, dict[str, Any]] = {
    "noting": {"max_ongoing_requests": 1, "max_queued_requests": 8},
    "stream": {"max_ongoing_requests": 1, "max_queued_requests": 1},
    "sums": {"max_ongoing_requests": 4, "max_queued_requests": 8},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Daemon]:
    models = {
        name: {
            "backend": "ray",
            "path": str(write_model(folder, name)),
            "resources": {"cpus": 0.1},
            **options,
        }
        for name, options in OPTIONS.items()
    }
    models["identity"] = {"backend": "ray", "path": IDENTITY, "resources": {"cpus": 0.1}}
    models["here"] = {"backend": "onnxruntime", "path": IDENTITY}
    with daemon_on(folder, "local", models) as running:
        yield running


def infer(daemon: Daemon, model: str, value: float, **options: Any) -> float:
    with triton_http.InferenceServerClient(daemon.addresses[0], network_timeout=60) as client:
        tensor = triton_http.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.array([value], np.float32))
        return float(client.infer(model, [tensor], **options).as_numpy("OUT")[0])


def in_time(daemon: Daemon, model: str, value: float, secs: float, **options: Any) -> float:
    """As :func:`infer`, with a deadline."""
    with triton_grpc.InferenceServerClient(daemon.addresses[0]) as client:
        tensor = triton_grpc.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.array([value], np.float32))
        return float(client.infer(model, [tensor], client_timeout=secs, **options).as_numpy("OUT")[0])


def notes(folder: Path) -> list[float]:
    """The requests that the model has run."""
    file = folder / "notes"
    return [float(line) for line in file.read_text().split()] if file.exists() else []


def test_a_stream_that_finds_no_place_is_refused_as_every_overload(daemon: Daemon) -> None:
    """One runs, one waits, the others are refused with the status of an overload."""
    found: queue.Queue[Any] = queue.Queue()
    with triton_grpc.InferenceServerClient(daemon.addresses[0]) as client:
        client.start_stream(lambda result, error: found.put(error))
        tensor = triton_grpc.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.array([4], np.float32))
        for _ in range(6):
            client.async_stream_infer("stream", [tensor])
        refused = answered = 0
        while answered < 4 * (6 - refused):
            error = found.get(timeout=30)
            assert error is None or "Exceeds maximum queue size" in error.message(), error.message()
            refused, answered = refused + (error is not None), answered + (error is None)
        client.stop_stream()
    assert 0 < refused < 6


def test_a_client_that_disconnects_cancels_its_request(daemon: Daemon, folder: Path) -> None:
    """The second one waits while the first one runs, and its client goes: it never runs."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(infer, daemon, "noting", 10.9)
        eventually(lambda: 10.9 in [round(each, 1) for each in notes(folder)])
        host, port = daemon.addresses[0].split(":")
        with socket.create_connection((host, int(port))) as client:
            tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [11.0]}
            body = json.dumps({"inputs": [tensor]}).encode()
            head = f"POST /v2/models/noting/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            daemon.until_in_flight(2)
            # reset, as by a process that is killed
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.result()
    assert infer(daemon, "noting", 12.0) == 12.0
    assert 11.0 not in notes(folder)


def test_a_request_whose_deadline_passes_in_the_queue_never_runs(daemon: Daemon, folder: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(infer, daemon, "noting", 20.75)
        eventually(lambda: 20.75 in notes(folder))
        with pytest.raises(InferenceServerException, match="Deadline Exceeded|before the deadline"):
            in_time(daemon, "noting", 21.0, 0.2)
        first.result()
    assert infer(daemon, "noting", 22.0) == 22.0
    assert 21.0 not in notes(folder)


def test_starts_that_wait_do_not_keep_out_the_end_of_a_sequence(daemon: Daemon) -> None:
    """The replica has one slot, which the first sequence has."""
    infer(daemon, "sums", 1, sequence_id=1, sequence_start=True)
    with ThreadPoolExecutor(8) as pool:
        starts = [
            pool.submit(infer, daemon, "sums", key, sequence_id=key, sequence_start=True, sequence_end=True)
            for key in range(2, 8)
        ]
        daemon.until_in_flight(6)
        assert in_time(daemon, "sums", 2, 20, sequence_id=1, sequence_end=True) == 3
        assert [each.result() for each in starts] == [2, 3, 4, 5, 6, 7]


def test_a_request_of_a_sequence_waits_no_longer_than_its_deadline(daemon: Daemon) -> None:
    """Another one of the sequence runs meanwhile; those after it are refused, since the sum lacks it."""
    infer(daemon, "sums", 0, sequence_id=30, sequence_start=True)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(infer, daemon, "sums", 1.96875, sequence_id=30)
        daemon.until_in_flight(1)
        began = time.monotonic()
        with pytest.raises(InferenceServerException, match="Deadline Exceeded|before the deadline"):
            in_time(daemon, "sums", 2, 0.1, sequence_id=30)
        with pytest.raises(InferenceServerException, match="START"):
            infer(daemon, "sums", 4, sequence_id=30)
        assert first.result() == 1.96875
    assert infer(daemon, "sums", 5, sequence_id=30, sequence_start=True, sequence_end=True) == 5
    assert time.monotonic() - began < 30


def test_a_request_without_a_start_is_refused(daemon: Daemon) -> None:
    with pytest.raises(InferenceServerException, match="START") as refused:
        infer(daemon, "sums", 1, sequence_id=40)
    assert refused.value.status() == "400"


def test_a_stream_that_is_cut_in_the_middle_frees_its_place(daemon: Daemon) -> None:
    """The model waits before its fourth answer; the client goes after the first."""
    for _ in range(2):
        got: queue.Queue[Any] = queue.Queue()
        with triton_grpc.InferenceServerClient(daemon.addresses[0]) as client:
            client.start_stream(lambda result, error, got=got: got.put(error))
            tensor = triton_grpc.InferInput("IN", [1], "FP32")
            tensor.set_data_from_numpy(np.array([1e6], np.float32))
            client.async_stream_infer("stream", [tensor])
            assert got.get(timeout=30) is None
            client.stop_stream(cancel_requests=True)
        daemon.until_in_flight(0)


def test_what_needs_no_object_store_goes_on_while_that_does_not_answer(daemon: Daemon) -> None:
    """A tensor above 64 KiB waits for the raylet, which is stopped; health and other models do not."""
    (raylet,) = [
        each
        for each in psutil.Process(daemon.process.pid).children(recursive=True)
        if each.name() == "raylet"
    ]

    def identity(model: str, count: int) -> None:
        sent = np.random.default_rng(count).random(count, dtype=np.float32)
        with triton_http.InferenceServerClient(daemon.addresses[0], network_timeout=60) as client:
            tensor = triton_http.InferInput("INPUT0", [count], "FP32")
            tensor.set_data_from_numpy(sent)
            assert client.infer(model, [tensor]).as_numpy("OUTPUT0").tobytes() == sent.tobytes()

    with ThreadPoolExecutor(1) as pool:
        raylet.suspend()
        try:
            waiting = pool.submit(identity, "identity", 50_000)
            daemon.until_in_flight(1)
            for count in (1, 50_000):
                identity("here", count)
            identity("identity", 1)
            assert not waiting.done()
        finally:
            raylet.resume()
        waiting.result()
