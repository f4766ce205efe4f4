"""Clients of TensorFlow Serving, OpenVINO Model Server and KServe drive the daemon."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import ovmsclient
import pytest
import requests
from ovmsclient.tfs_compat.base.errors import ModelNotFoundError
from ovmsclient.tfs_compat.protos.tensorflow.core.framework import types_pb2 as types
from ovmsclient.tfs_compat.protos.tensorflow_serving.apis import (
    model_management_pb2,
    model_service_pb2_grpc,
)

from tests.e2e.daemon import ROOT, Daemon

A = np.arange(16, dtype=np.int32)[None]
B = np.full((1, 16), 5, np.int32)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one: dict[str, Any] = {"listen": "127.0.0.1:0", "dialects": ["tfserving"]}
    config = {
        "listeners": [
            {**one, "transport": "http"},
            {**one, "transport": "grpc"},
            {**one, "transport": "http", "flavors": {"tfserving": "kserve"}},
        ],
        "model_repository": [{"path": str(ROOT / "examples" / "models")}],
    }
    running = Daemon.start(tmp_path_factory.mktemp("tfserving"), config)
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Any:
    if request.param == "http":
        return ovmsclient.make_http_client(daemon.addresses[0])
    return ovmsclient.make_grpc_client(daemon.addresses[1])


def test_predictions(client: Any) -> None:
    answer = client.predict({"INPUT0": A, "INPUT1": B}, "simple", timeout=30.0)
    assert (answer["OUTPUT0"] == A + B).all()
    assert (answer["OUTPUT1"] == A - B).all()
    numbers = np.array([0.1, np.nan, -np.inf], np.float32)
    same = client.predict({"INPUT0": numbers}, "identity_fp32", timeout=30.0)
    assert np.array_equal(np.asarray(same, np.float32), numbers, equal_nan=True)
    texts = client.predict({"INPUT0": np.array([b"a", b"bc"])}, "identity_bytes", timeout=30.0)
    assert [each if isinstance(each, str) else each.decode() for each in texts.tolist()] == ["a", "bc"]
    one = client.predict({"INPUT0": np.array([7], np.int32)}, "multi_ver", model_version=3, timeout=30.0)
    assert one.size == 1


def test_what_there_is(client: Any) -> None:
    status = client.get_model_status("multi_ver", timeout=30.0)
    assert {state["state"] for state in status.values()} <= {"AVAILABLE"}
    metadata = client.get_model_metadata("simple", timeout=30.0)
    if "inputs" not in metadata:  # over HTTP this client knows the spelling of OpenVINO Model Server alone
        metadata = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert metadata["inputs"]["INPUT0"]["dtype"] == "DT_INT32"
        return
    assert metadata["inputs"]["INPUT0"] == {"shape": [-1, 16], "dtype": types.DataType.Name(3)}
    assert metadata["model_version"] == 1


def test_unknown_models(client: Any) -> None:
    with pytest.raises(ModelNotFoundError, match="nothing"):
        client.predict({"INPUT0": A}, "nothing", timeout=30.0)
    with pytest.raises(ModelNotFoundError, match="Could not find any versions of model nothing"):
        client.get_model_status("nothing", timeout=30.0)


def test_a_client_lists_the_models_that_it_wants(tmp_path: Path) -> None:
    models = ROOT / "examples" / "models"
    config = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["tfserving"]}],
        "model_repository": [{"path": str(models), "control": "explicit", "load": ["simple"]}],
        "admin": {"listen": "127.0.0.1:0"},
    }

    def entry(name: str, **fields: Any) -> dict[str, Any]:
        return {"name": name, "base_path": str(models / name), "model_platform": "tensorflow", **fields}

    daemon = Daemon.start(tmp_path, config)
    try:
        client = ovmsclient.make_grpc_client(daemon.addresses[0])
        assert client.get_model_status("simple", timeout=30.0)[1]["state"] == "AVAILABLE"
        listed = [entry("identity_fp32"), entry("multi_ver", model_version_policy={"all": {}})]
        with grpc.insecure_channel(daemon.addresses[0]) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            request = model_management_pb2.ReloadConfigRequest(
                config={"model_config_list": {"config": listed}}
            )
            assert stub.HandleReloadConfigRequest(request, timeout=60).status.error_code == 0
            request.config.model_config_list.config[0].base_path = "/nowhere"
            with pytest.raises(grpc.RpcError) as raised:
                stub.HandleReloadConfigRequest(request, timeout=60)
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        assert {each["state"] for each in client.get_model_status("multi_ver", timeout=30.0).values()} == {
            "AVAILABLE"
        }
        assert len(client.get_model_status("multi_ver", timeout=30.0)) > 1
        numbers = np.array([1.5], np.float32)
        assert client.predict({"INPUT0": numbers}, "identity_fp32", timeout=30.0) == numbers
        with pytest.raises(ModelNotFoundError):
            client.predict({"INPUT0": A, "INPUT1": B}, "simple", timeout=30.0)
        metrics = requests.get(f"{daemon.admin}/metrics", timeout=30).text
        counted = [line for line in metrics.splitlines() if 'dialect="tfserving"' in line]
        for operation in ("models_reload", "status", "infer"):
            assert any(f'operation="{operation}"' in line for line in counted), operation
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_kserve(daemon: Daemon) -> None:
    script = Path(__file__).parent / "tfserving_kserve_client.py"
    done = subprocess.run(
        [sys.executable, str(script), daemon.addresses[2]], capture_output=True, text=True, timeout=90
    )
    assert done.stdout.endswith("answered\n"), done.stderr
