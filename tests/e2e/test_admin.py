"""The operator's address of the real daemon: numbers of real requests, health while it ends, and what it is not."""

from __future__ import annotations

import queue
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.daemon import ROOT, WAIT_SECS, Daemon
from tests.e2e.test_lifecycle import BODY, IDENTITY
from tests.waiting import eventually


def config(**more: Any) -> dict[str, Any]:
    return {
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
        ],
        "admin": {"listen": "127.0.0.1:0"},
        "models": {"identity": IDENTITY},
        **more,
    }


def operators(daemon: Daemon) -> str:
    """The URL of the operator's address."""
    (line,) = (line for line in daemon.log if line["event"] == "admin listening")
    return f"http://{line['address']}"


def metrics(admin: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By name as it stands in the text, and by the values of the labels as they stand there."""
    reply = requests.get(f"{admin}/metrics", timeout=WAIT_SECS)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(reply.text):
        for sample in family.samples:
            # the parser gives every counter the suffix, which Triton's have not
            known = f"\n{sample.name}" in reply.text
            name = sample.name if known else sample.name.removesuffix("_total")
            found.setdefault(name, {})[tuple(sample.labels.values())] = sample.value
    return found


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("admin")
    daemon = Daemon.start(folder, config(model_repository=[{"path": str(ROOT / "examples" / "models")}]))
    try:
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


def test_requests_of_real_clients_are_counted(daemon: Daemon) -> None:
    http, grpc = daemon.addresses
    admin = operators(daemon)
    for _ in range(3):
        requests.post(
            f"http://{http}/v2/models/identity/infer", json=BODY, timeout=WAIT_SECS
        ).raise_for_status()
    wrong = requests.post(f"http://{http}/v2/models/identity/infer", data=b"{", timeout=WAIT_SECS)
    assert wrong.status_code == 400
    assert requests.get(f"http://{http}/api/health/live", timeout=WAIT_SECS).status_code == 200
    with triton_grpc.InferenceServerClient(grpc) as client:
        given = triton_grpc.InferInput("INPUT0", [2], "FP32")
        given.set_data_from_numpy(np.zeros(2, np.float32))
        for _ in range(2):
            client.infer("identity", [given])
    expected = {
        (http, "http", "oip", "infer", "OK"): 3,
        (http, "http", "oip", "infer", "MALFORMED"): 1,
        (http, "http", "trtis", "live", "OK"): 1,
        (grpc, "grpc", "oip", "infer", "OK"): 2,
    }
    # a request is counted a moment after its answer
    eventually(lambda: metrics(admin)["interlingua_requests_total"].items() >= expected.items())
    found = metrics(admin)
    assert found["interlingua_requests_total"].items() >= expected.items()
    assert found["interlingua_requests_in_flight"][grpc, "grpc", "oip"] == 0
    assert found["interlingua_request_duration_seconds_count"][http, "http", "oip"] == 4
    assert found["interlingua_stage_duration_seconds_count"][http, "http", "oip", "encode"] == 3
    assert found["interlingua_received_bytes_total"][http, "http", "oip"] > 100
    assert found["nv_inference_request_success"]["identity", "1"] == 5
    assert found["nv_inference_count"]["identity", "1"] == 5
    assert found["nv_inference_request_duration_us"]["identity", "1"] > 0
    assert found["interlingua_model_ready"]["digits", "1"] == 1
    # one value for each process of the server
    assert min(found["process_open_fds"].values()) > 10
    assert list(found["interlingua_build_info"].values()) == [1]


def test_pages(daemon: Daemon) -> None:
    admin = operators(daemon)
    page = requests.get(f"{admin}/", timeout=WAIT_SECS)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert '<h2 id="models-title">Models</h2>' in page.text
    assert requests.get(f"{admin}/models", timeout=WAIT_SECS).json()["digits"]["state"] == "READY"
    listeners = requests.get(f"{admin}/server", timeout=WAIT_SECS).json()["listeners"]
    assert [each["address"] for each in listeners] == daemon.addresses
    assert requests.get(f"{admin}/upstreams", timeout=WAIT_SECS).json() == {}
    head = requests.head(f"{admin}/health/ready", timeout=WAIT_SECS)
    assert (head.status_code, head.content) == (200, b"")
    assert requests.post(f"{admin}/metrics", timeout=WAIT_SECS).status_code == 405
    assert requests.get(f"{admin}/", data=b"x", timeout=WAIT_SECS).status_code == 413
    assert requests.get(f"{admin}/v2/health/live", timeout=WAIT_SECS).status_code == 404


def test_clients_get_none_of_it(daemon: Daemon) -> None:
    for path in ("metrics", "health/ready", "models", "view"):
        assert requests.get(f"http://{daemon.addresses[0]}/{path}", timeout=WAIT_SECS).status_code == 404


def test_who_goes_away_is_counted_as_cancelled(tmp_path: Path) -> None:
    (tmp_path / "models" / "endless" / "1").mkdir(parents=True)
    (tmp_path / "models" / "endless" / "1" / "model.py").write_text(
        "import time\n"
        "import numpy as np\n"
        "import triton_python_backend_utils as pb\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        for request in requests:\n"
        "            sender = request.get_response_sender()\n"
        "            while not request.is_cancelled():\n"
        "                sender.send(pb.InferenceResponse([pb.Tensor('y', np.zeros(1, np.float32))]))\n"
        "                time.sleep(0.01)\n"
        "            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n"
    )
    (tmp_path / "models" / "endless" / "config.pbtxt").write_text(
        'backend: "python" input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } '
        'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } model_transaction_policy { decoupled: true } '
        "instance_group { count: 2 }"
    )
    daemon = Daemon.start(tmp_path, config(model_repository=[{"path": str(tmp_path / "models")}]))
    http, grpc = daemon.addresses
    admin = operators(daemon)
    streams = (http, "http", "oip"), (grpc, "grpc", "oip")

    def in_flight() -> list[float]:
        found = metrics(admin)["interlingua_requests_in_flight"]
        return [found[where] for where in streams]

    try:
        url = f"http://{http}/v2/models/endless/generate_stream"
        reply = requests.post(url, json={"x": [1.0]}, stream=True, timeout=WAIT_SECS)
        lines = reply.iter_lines()
        assert next(lines).startswith(b"data: ")
        with triton_grpc.InferenceServerClient(grpc) as client:
            answers: queue.Queue[Any] = queue.Queue()
            client.start_stream(lambda result, error: answers.put((result, error)))
            given = triton_grpc.InferInput("x", [1], "FP32")
            given.set_data_from_numpy(np.zeros(1, np.float32))
            client.async_stream_infer("endless", [given])
            try:
                assert answers.get(timeout=WAIT_SECS)[1] is None
                assert in_flight() == [1, 1]
            finally:
                client.stop_stream(cancel_requests=True)
        reply.close()
        failures = "endless", "CANCELED", "1"
        eventually(lambda: metrics(admin)["nv_inference_request_failure"][failures] == 2)
        eventually(lambda: in_flight() == [0, 0])
        found = metrics(admin)
        for where in streams:
            assert found["interlingua_requests_total"][(*where, "infer_stream", "CANCELLED")] == 1
            assert found["interlingua_sent_bytes_total"][where] > 0
        assert found["nv_inference_request_failure"][failures] == 2
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_health_is_there_while_models_load(tmp_path: Path) -> None:
    (tmp_path / "models" / "late" / "1").mkdir(parents=True)
    (tmp_path / "models" / "late" / "1" / "model.py").write_text(
        "import pathlib, time\n"
        "class TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        f"        while not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n"
        "            time.sleep(0.02)\n"
        "    def execute(self, requests):\n"
        "        return []\n"
    )
    (tmp_path / "models" / "late" / "config.pbtxt").write_text(
        'backend: "python" input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } '
        'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }'
    )
    daemon = Daemon.begin(tmp_path, config(model_repository=[{"path": str(tmp_path / "models")}]))
    try:
        daemon.until("admin listening")
        admin = operators(daemon)
        assert requests.get(f"{admin}/health/live", timeout=WAIT_SECS).json()["live"] is True
        reply = requests.get(f"{admin}/health/ready", timeout=WAIT_SECS)
        assert reply.status_code == 503
        assert reply.json() == {"ready": False, "reasons": ["models are being loaded"]}
        assert requests.get(f"{admin}/metrics", timeout=WAIT_SECS).status_code == 503
        (tmp_path / "go").touch()
        daemon.until("serving")
        assert requests.get(f"{admin}/health/ready", timeout=WAIT_SECS).status_code == 200
        assert metrics(admin)["interlingua_model_ready"]["late", "1"] == 1
        assert daemon.stop() == 0
    finally:
        (tmp_path / "go").touch()
        daemon.kill()


def test_health_is_there_until_the_last_request_is_done(tmp_path: Path) -> None:
    (tmp_path / "models" / "slow" / "1").mkdir(parents=True)
    (tmp_path / "models" / "slow" / "1" / "model.py").write_text(
        "import pathlib, time\n"
        "import triton_python_backend_utils as pb\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        f"        while not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n"
        "            time.sleep(0.02)\n"
        "        x = pb.get_input_tensor_by_name(requests[0], 'INPUT0').as_numpy()\n"
        "        return [pb.InferenceResponse([pb.Tensor('y', x)])]\n"
    )
    (tmp_path / "models" / "slow" / "config.pbtxt").write_text(
        'backend: "python" input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } '
        'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }'
    )
    models = [{"path": str(tmp_path / "models")}]
    daemon = Daemon.start(tmp_path, config(model_repository=models, server={"shutdown_timeout_secs": 600}))
    admin = operators(daemon)
    base = f"http://{daemon.addresses[0]}/v2"
    replies: list[requests.Response] = []
    asking = threading.Thread(
        target=lambda: replies.append(requests.post(f"{base}/models/slow/infer", json=BODY, timeout=600))
    )

    def listens() -> bool:
        assert requests.get(f"{admin}/health/ready", timeout=WAIT_SECS).status_code in (200, 503)
        try:
            requests.get(f"{base}/health/live", timeout=WAIT_SECS)
        except requests.ConnectionError:
            return False
        return True

    try:
        eventually(lambda: requests.get(f"{admin}/health/ready", timeout=WAIT_SECS).json()["ready"])
        asking.start()
        daemon.until_in_flight(1)
        daemon.process.send_signal(signal.SIGTERM)
        # the clients' listener closes, and the request is still under way
        eventually(lambda: not listens())
        reply = requests.get(f"{admin}/health/ready", timeout=WAIT_SECS)
        assert reply.status_code == 503
        assert reply.json() == {"ready": False, "reasons": ["the server is shutting down"]}
        assert requests.get(f"{admin}/health/live", timeout=WAIT_SECS).status_code == 200
        assert not replies
        found = metrics(admin)
        assert found["interlingua_draining"][()] == 1
        assert found["interlingua_requests_in_flight"][daemon.addresses[0], "http", "oip"] == 1
        (tmp_path / "go").touch()
        asking.join(WAIT_SECS)
        assert replies[0].status_code == 200
        assert daemon.process.wait(WAIT_SECS) == 0
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{admin}/health/live", timeout=WAIT_SECS)
    finally:
        (tmp_path / "go").touch()
        daemon.kill()


def test_an_address_in_use_is_reported_and_nothing_stays_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path = tmp_path / "admin.sock"
        with pytest.raises(AssertionError, match=f"startup failed.*{address}"):
            Daemon.start(tmp_path, config(admin={"listen": address}))
        # and a listener that cannot be had leaves no socket of the operator's behind
        listeners = [{"listen": address, "transport": "http"}]
        with pytest.raises(AssertionError, match="startup failed"):
            Daemon.start(tmp_path, config(listeners=listeners, admin={"listen": f"unix:{path}"}))
        assert not path.exists()
