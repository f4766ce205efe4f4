"""A cluster of three nodes on this machine: replicas that follow the load, a node that is killed under load, and
a cluster that is lost and comes back."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from tests.e2e.daemon import Daemon
from tests.ray.cluster import daemon_on, ray_cluster, replicas, until_ready
from tests.ray.models import write_model
from tests.waiting import eventually

pytestmark = pytest.mark.long

REFUSED = {429, 503, 504}
"""Statuses of a request that was refused because of the cluster."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with ray_cluster(3, cpus=2) as cluster:
        yield cluster


@contextmanager
def load(daemon: Daemon, model: str, value: float, clients: int) -> Iterator[Counter[str]]:
    """``clients`` that send one request after another; the outcomes by status, ``wrong`` and ``hung``."""
    outcomes: Counter[str] = Counter()
    lock, stop = threading.Lock(), threading.Event()
    url = f"http://{daemon.addresses[0]}/v2/models/{model}/infer"
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [value]}]}

    def client() -> None:
        with requests.Session() as session:
            while not stop.is_set():
                try:
                    answer = session.post(url, json=body, timeout=30)
                except requests.Timeout:
                    outcome = "hung"
                else:
                    outcome = str(answer.status_code)
                    if answer.status_code == 200 and answer.json()["outputs"][0]["data"] != [
                        float(np.float32(value))
                    ]:
                        outcome = "wrong"
                with lock:
                    outcomes[outcome] += 1

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for each in threads:
        each.start()
    try:
        yield outcomes
    finally:
        stop.set()
        for each in threads:
            each.join()


def test_replicas_follow_the_load(nodes: Any, tmp_path: Path) -> None:
    """From one to four, and back to one."""
    scaling = {
        "min": 1,
        "max": 4,
        "target_ongoing": 2,
        "up_delay_secs": 1,
        "down_delay_secs": 3,
        "window_secs": 3,
    }
    path = str(write_model(tmp_path, "slow"))
    model = {"backend": "ray", "path": path, "replicas": scaling, "resources": {"cpus": 1}}
    with daemon_on(tmp_path, nodes.address, {"slow": model}) as daemon:
        assert len(replicas(daemon, "slow")) == 1
        with load(daemon, "slow", 0.25, 12) as outcomes:
            eventually(lambda: len(replicas(daemon, "slow")) == 4)
            assert len({each["node"] for each in replicas(daemon, "slow")}) > 1
        eventually(lambda: len(replicas(daemon, "slow")) == 1)
    assert set(outcomes) == {"200"}


def test_a_node_that_is_killed_under_load(nodes: Any, tmp_path: Path) -> None:
    """Every request is right or refused, none hangs, and the replicas are back without anyone."""
    path = str(write_model(tmp_path, "slow"))
    model = {"backend": "ray", "path": path, "replicas": 4, "resources": {"cpus": 1}}
    with daemon_on(tmp_path, nodes.address, {"slow": model}) as daemon:
        eventually(lambda: len(replicas(daemon, "slow")) == 4)
        head = nodes.head_node.node_id
        victim = next(
            each
            for each in nodes.list_all_nodes()
            if each.node_id != head and each.node_id in {one["node"] for one in replicas(daemon, "slow")}
        )
        with load(daemon, "slow", 0.03125, 8) as outcomes:
            eventually(lambda: outcomes["200"] > 50)
            nodes.remove_node(victim, allow_graceful=False)
            nodes.add_node(num_cpus=2, object_store_memory=100 << 20)

            def recovered() -> bool:
                here = [each for each in replicas(daemon, "slow") if each["node"] != victim.node_id]
                return len(here) == 4

            eventually(recovered)
            before = outcomes["200"]
            eventually(lambda: outcomes["200"] > before + 50)
        until_ready(daemon, "slow")
    refused = {int(each) for each in outcomes if each not in ("200", "wrong", "hung")}
    assert outcomes["wrong"] == outcomes["hung"] == 0, outcomes
    assert refused <= REFUSED, outcomes


def test_a_cluster_that_is_lost_comes_back(tmp_path: Path) -> None:
    """The raylet of a local cluster is killed: requests are refused, and the daemon starts another cluster."""
    import psutil

    model = {"backend": "ray", "path": "examples/models/digits", "resources": {"cpus": 1}}
    with daemon_on(tmp_path, "local", {"digits": model}) as daemon:
        children = psutil.Process(daemon.process.pid).children(recursive=True)
        for each in children:
            if each.name() in ("raylet", "gcs_server"):
                each.kill()
        until_ready(daemon, "digits", ready=False)
        began = time.monotonic()
        body = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 64], "data": [0.0] * 64}]}
        url = f"http://{daemon.addresses[0]}/v2/models/digits/infer"
        assert requests.post(url, json=body, timeout=30).status_code == 503
        assert time.monotonic() - began < 10
        assert requests.get(f"{daemon.admin}/health/ready", timeout=10).status_code == 503
        until_ready(daemon, "digits")
        eventually(lambda: requests.post(url, json=body, timeout=60).status_code == 200)
    assert daemon.process.returncode == 0
