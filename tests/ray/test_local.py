"""A local cluster of the daemon's own, with two replicas: the short form, without a node that is killed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import psutil
import pytest
import tritonclient.http as triton_http

from tests.e2e.daemon import Daemon
from tests.ray.cluster import daemon_on

DIGITS = {"backend": "ray", "path": "examples/models/digits", "replicas": 2, "resources": {"cpus": 0.5}}
HERE = {"backend": "onnxruntime", "path": "examples/models/digits"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon_on(tmp_path_factory.mktemp("ray"), "local", {"digits": DIGITS, "here": HERE}) as running:
        yield running


def probabilities(daemon: Daemon, model: str, image: np.ndarray) -> np.ndarray:
    with triton_http.InferenceServerClient(daemon.addresses[0]) as client:
        tensor = triton_http.InferInput("image", list(image.shape), "FP32")
        tensor.set_data_from_numpy(image)
        return client.infer(model, [tensor]).as_numpy("probabilities")


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_answers_are_those_of_the_model_here(daemon: Daemon, rows: int) -> None:
    image = np.random.default_rng(rows).random((rows, 64), dtype=np.float32)
    there, here = (probabilities(daemon, name, image) for name in ("digits", "here"))
    assert there.tobytes() == here.tobytes()


def test_a_local_cluster_is_bound_to_loopback(daemon: Daemon) -> None:
    """No port of a process of Ray is open to other machines."""
    processes = {each.pid for each in psutil.Process(daemon.process.pid).children(recursive=True)}
    open_ports = [
        (psutil.Process(each.pid).name(), each.laddr)
        for each in psutil.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
        and each.pid in processes
        and each.laddr.ip not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    ]
    assert len(processes) > 5
    assert open_ports == []
