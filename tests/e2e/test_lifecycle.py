"""Starting and stopping the real daemon."""

from __future__ import annotations

import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import requests
import tritonclient.grpc as triton_grpc
from onnx import TensorProto, helper

from tests.e2e.daemon import WAIT_SECS, Daemon
from tests.waiting import eventually

IDENTITY = {
    "backend": "identity",
    "signature": {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1]}],
    },
}
BODY = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1.5]}]}


def config(**more: Any) -> dict[str, Any]:
    return {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0"},
        "models": {"identity": IDENTITY},
        **more,
    }


def leaves(base: str) -> bool:
    """Whether the daemon reports that it drains."""
    reply = requests.get(f"{base}/health/ready", timeout=WAIT_SECS)
    return reply.status_code == 400 and reply.json()["ready"] is False


def slow_model(folder: Path) -> Path:
    """A model that counts to its input: about a second for a million turns."""
    count = helper.make_tensor_value_info("TURNS", TensorProto.INT64, [])
    total = helper.make_tensor_value_info("TOTAL", TensorProto.INT64, [])
    one = helper.make_node("Constant", [], ["one"], value=helper.make_tensor("v", TensorProto.INT64, [], [1]))
    zero = helper.make_node(
        "Constant", [], ["zero"], value=helper.make_tensor("v", TensorProto.INT64, [], [0])
    )
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["keep"], ["keep_out"]),
            helper.make_node("Add", ["sum", "one"], ["sum_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("keep_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum_out", TensorProto.INT64, []),
        ],
    )
    loop = helper.make_node("Loop", ["TURNS", "", "zero"], ["TOTAL"], body=body)
    graph = helper.make_graph([one, zero, loop], "count", [count], [total])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "slow.onnx"
    onnx.save(model, path)
    return path


def test_sigterm_finishes_requests_and_exits_with_zero(tmp_path: Path) -> None:
    daemon = Daemon.start(
        tmp_path,
        config(
            models={"slow": {"backend": "onnxruntime", "path": str(slow_model(tmp_path))}},
            server={"drain_secs": 1.0},
        ),
    )
    base = f"http://{daemon.addresses[0]}/v2"
    turns = 1_200_000
    body = {"inputs": [{"name": "TURNS", "datatype": "INT64", "shape": [], "data": [turns]}]}
    replies: list[requests.Response] = []

    def ask() -> None:
        replies.append(requests.post(f"{base}/models/slow/infer", json=body, timeout=60))

    try:
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        daemon.until_in_flight(2)
        assert not replies, "the model must still be counting"
        daemon.process.send_signal(signal.SIGTERM)
        # draining: it says so, and still answers
        eventually(lambda: leaves(base))
        assert requests.get(f"{base}/health/live", timeout=WAIT_SECS).status_code == 200
        for thread in threads:
            thread.join(WAIT_SECS)
        assert [reply.json()["outputs"][0]["data"] for reply in replies] == [[turns], [turns]]
        assert daemon.process.wait(WAIT_SECS) == 0
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{base}/health/live", timeout=WAIT_SECS)
    finally:
        daemon.kill()
    assert any(line["event"] == "stopped" for line in daemon.log)


def test_a_deadline_ends_the_waiting(tmp_path: Path) -> None:
    daemon = Daemon.start(
        tmp_path,
        config(
            listeners=[{"listen": "127.0.0.1:0", "transport": "grpc"}],
            models={"slow": {"backend": "onnxruntime", "path": str(slow_model(tmp_path)), "instances": 2}},
        ),
    )
    try:
        with triton_grpc.InferenceServerClient(daemon.addresses[0]) as client:
            given = triton_grpc.InferInput("TURNS", [], "INT64")
            given.set_data_from_numpy(np.array(800_000))
            with pytest.raises(triton_grpc.InferenceServerException, match="DEADLINE_EXCEEDED"):
                client.infer("slow", [given], client_timeout=0.1)
            given.set_data_from_numpy(np.array(3))
            assert client.infer("slow", [given], client_timeout=30).as_numpy("TOTAL") == 3
        assert daemon.stop() == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize(
    ("dialect", "transport", "flavor"),
    [
        ("trtis", "http", None),
        ("trtis", "grpc", None),
        ("tfserving", "grpc", None),
        ("tfserving", "http", "kserve"),
        ("grps", "http", None),
        ("oip", "grpc", None),
    ],
)
def test_a_server_that_drains_takes_no_readiness_away(
    dialect: str, transport: str, flavor: str | None, tmp_path: Path
) -> None:
    flavors = {"flavors": {dialect: flavor}} if flavor else {}
    servers = []
    for name in ("leaving", "staying"):
        (tmp_path / name).mkdir()
        listener = {"listen": "127.0.0.1:0", "transport": transport, "dialects": [dialect], **flavors}
        settings = {"drain_secs": 60.0}
        servers.append(Daemon.start(tmp_path / name, config(listeners=[listener], server=settings)))
    urls = [server.addresses[0] for server in servers]
    # no probe at an interval notices
    there = {"dialect": dialect, "transport": transport, "urls": urls, "probe_interval_secs": 600}
    there |= {"flavor": flavor} if flavor else {}
    model = {"upstream": "there", "remote_model": "identity", "signature": IDENTITY["signature"]}
    before = Daemon.start(tmp_path, config(upstreams={"there": there}, models={"m": model}))
    health = f"http://{before.addresses[0]}/v2/health/ready"
    assert requests.get(health, timeout=WAIT_SECS).status_code == 200
    servers[0].process.send_signal(signal.SIGTERM)
    servers[0].until("stopping")
    answers = [requests.get(health, timeout=WAIT_SECS) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 6, [answer.text for answer in answers]
    for daemon in (before, *servers):
        daemon.kill()


def test_interrupting_does_not_wait_for_balancers(tmp_path: Path) -> None:
    daemon = Daemon.start(tmp_path, config(server={"drain_secs": 60.0}))
    try:
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(WAIT_SECS / 2) == 0
    finally:
        daemon.kill()


def test_a_second_signal_ends_the_waiting(tmp_path: Path) -> None:
    daemon = Daemon.start(tmp_path, config(server={"drain_secs": 60.0}))
    try:
        daemon.process.send_signal(signal.SIGTERM)
        daemon.until("stopping")
        time.sleep(0.1)
        assert daemon.process.poll() is None
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(WAIT_SECS / 2) == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_signal_changes_the_exit_code_once_it_has_stopped(number: int, tmp_path: Path) -> None:
    daemon = Daemon.start(tmp_path, config())
    try:
        daemon.process.send_signal(signal.SIGINT)
        daemon.until("stopped")
        while daemon.process.poll() is None:
            daemon.process.send_signal(number)
            time.sleep(0.001)
        assert daemon.process.returncode == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize("engine", ["native", "library"])
def test_a_second_signal_cuts_what_runs(engine: str, tmp_path: Path) -> None:
    listeners = [
        {"listen": "127.0.0.1:0", "transport": transport, "engine": engine} for transport in ("http", "grpc")
    ]
    slow = {"slow": {"backend": "onnxruntime", "path": str(slow_model(tmp_path)), "instances": 2}}
    daemon = Daemon.start(tmp_path, config(listeners=listeners, models=slow, server={"drain_secs": 60.0}))
    turns = np.array(50_000_000)
    cut: list[Exception] = []

    def ask_http() -> None:
        body = {"inputs": [{"name": "TURNS", "datatype": "INT64", "shape": [], "data": [int(turns)]}]}
        try:
            requests.post(f"http://{daemon.addresses[0]}/v2/models/slow/infer", json=body, timeout=60)
        except requests.ConnectionError as error:
            cut.append(error)

    def ask_grpc() -> None:
        given = triton_grpc.InferInput("TURNS", [], "INT64")
        given.set_data_from_numpy(turns)
        with triton_grpc.InferenceServerClient(daemon.addresses[1]) as client:
            try:
                client.infer("slow", [given], client_timeout=60)
            except triton_grpc.InferenceServerException as error:
                cut.append(error)

    threads = [threading.Thread(target=ask) for ask in (ask_http, ask_grpc)]
    try:
        for thread in threads:
            thread.start()
        daemon.until_in_flight(2)
        daemon.process.send_signal(signal.SIGINT)
        daemon.until("stopping")
        time.sleep(0.2)
        assert not cut, "the first signal lets them run"
        daemon.process.send_signal(signal.SIGINT)
        for thread in threads:
            thread.join(WAIT_SECS)
        assert len(cut) == 2
        assert daemon.until("requests cut at shutdown")["count"] == 2
    finally:
        daemon.kill()


def test_a_model_that_cannot_be_loaded_keeps_the_server_from_being_ready(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"this is no model")
    broken = {"backend": "onnxruntime", "path": str(tmp_path / "broken.onnx")}
    daemon = Daemon.start(tmp_path, config(models={"identity": IDENTITY, "broken": broken}))
    base = f"http://{daemon.addresses[0]}/v2"
    try:
        reply = requests.get(f"{base}/health/ready", timeout=WAIT_SECS)
        assert reply.status_code == 400 and reply.json()["ready"] is False
        assert "broken" in reply.json().get("error", reply.text)
        assert requests.get(f"{base}/models/broken/ready", timeout=WAIT_SECS).status_code == 400
        assert requests.get(f"{base}/models/identity/ready", timeout=WAIT_SECS).status_code == 200
        assert requests.post(f"{base}/models/identity/infer", json=BODY, timeout=WAIT_SECS).status_code == 200
        assert requests.post(f"{base}/models/broken/infer", json=BODY, timeout=WAIT_SECS).status_code == 404
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    assert any(line.get("model") == "broken" and line["level"] == "error" for line in daemon.log)
    counted = next(line for line in daemon.log if line["event"] == "models failed to load")
    assert (counted["level"], counted["failed"]) == ("warning", "broken")
    assert (daemon.until("serving")["models"], daemon.until("serving")["of"]) == (1, 2)


def test_what_readiness_needs_can_be_configured(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"this is no model")
    broken = {"backend": "onnxruntime", "path": str(tmp_path / "broken.onnx"), "required": False}
    daemon = Daemon.start(tmp_path, config(models={"identity": IDENTITY, "broken": broken}))
    try:
        assert (
            requests.get(f"http://{daemon.addresses[0]}/v2/health/ready", timeout=WAIT_SECS).status_code
            == 200
        )
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_a_server_without_models_is_not_ready(tmp_path: Path) -> None:
    daemon = Daemon.start(tmp_path, config(models={}))
    try:
        assert (
            requests.get(f"http://{daemon.addresses[0]}/v2/health/ready", timeout=WAIT_SECS).status_code
            == 400
        )
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_an_address_in_use_is_named_and_the_exit_code_is_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for transport in ("http", "grpc"):
            listeners = [
                {"listen": "127.0.0.1:0", "transport": "http"},
                {"listen": address, "transport": transport},
            ]
            with pytest.raises(AssertionError, match=address):
                Daemon.start(tmp_path, config(listeners=listeners))


def test_the_default_model_and_a_route(tmp_path: Path) -> None:
    daemon = Daemon.start(
        tmp_path,
        config(
            # where grps is spoken too, "/" is its page
            listeners=[{"listen": "127.0.0.1:0", "transport": "http", "dialects": ["oip", "graphpipe"]}],
            default_model="identity",
            routes=[{"match": {"model": "old_*", "dialect": "oip"}, "to": "identity"}],
        ),
    )
    base = f"http://{daemon.addresses[0]}"
    try:
        assert requests.get(f"{base}/", timeout=WAIT_SECS).json()["Name"] == "identity"
        reply = requests.post(f"{base}/v2/models/old_model/infer", json=BODY, timeout=WAIT_SECS)
        assert reply.json()["model_name"] == "old_model"
        assert reply.json()["outputs"][0]["data"] == [1.5]
        assert requests.get(f"{base}/graphpipe/old_model", timeout=WAIT_SECS).status_code == 404
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_large_messages_pass(tmp_path: Path) -> None:
    import tritonclient.http as triton_http

    listeners = [
        {"listen": "127.0.0.1:0", "transport": "http"},
        {"listen": "127.0.0.1:0", "transport": "grpc"},
    ]
    daemon = Daemon.start(tmp_path, config(listeners=listeners))
    array = np.random.default_rng(1).random(4 << 20, np.float32)
    try:
        for module, address in zip((triton_http, triton_grpc), daemon.addresses, strict=True):
            given = module.InferInput("INPUT0", array.shape, "FP32")
            given.set_data_from_numpy(array)
            with module.InferenceServerClient(address) as client:
                assert client.infer("identity", [given]).as_numpy("OUTPUT0").tobytes() == array.tobytes()
        assert daemon.stop() == 0
    finally:
        daemon.kill()
