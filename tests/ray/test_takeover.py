"""Daemons that use the same deployment, one after the other: the last one deletes it."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.e2e.daemon import STOP_SECS, Daemon
from tests.ray.cluster import configuration, ray_cluster, replicas
from tests.ray.models import write_model
from tests.waiting import eventually

BROKEN = "raise RuntimeError('not this file')"
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [0]}]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(1) as found:
        yield found


@contextmanager
def load(address: str) -> Iterator[Counter[str]]:
    """Two clients that send one request after another; the outcomes."""
    outcomes: Counter[str] = Counter()
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            try:
                answer = requests.post(f"http://{address}/v2/models/version/infer", json=BODY, timeout=30)
                outcomes["1" if answer.ok else answer.text] += 1
            except requests.RequestException as error:
                outcomes[str(error)] += 1

    threads = [threading.Thread(target=client) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        yield outcomes
    finally:
        stop.set()
        for each in threads:
            each.join()


def test_the_deployment_stays_when_a_successor_has_it(cluster: Any, tmp_path: Path) -> None:
    """No request fails: neither while a daemon tries whose files do not load, nor while one takes over that
    states something else of the model."""
    path = write_model(tmp_path / "models", "version")
    broken = write_model(tmp_path / "broken", "version")
    (broken / "1" / "model.py").write_text(BROKEN)

    def of(path: Path, drain_secs: float, **more: Any) -> dict[str, Any]:
        model = {"backend": "ray", "path": str(path), "resources": {"cpus": 1}, **more}
        server = {"handover_socket": str(tmp_path / "handover.sock"), "drain_secs": drain_secs}
        return configuration(cluster.address, {"version": model}, server=server)

    old = Daemon.start(tmp_path, of(path, 0.2))
    daemons = [old]
    try:
        before = replicas(old, "version")
        (process,) = [psutil.Process(each["process"]) for each in before]
        with load(old.addresses[0]) as outcomes:
            eventually(lambda: outcomes["1"] > 5)
            daemons.append(failing := Daemon.begin(tmp_path, of(broken, 0.2), "--take-over"))
            assert failing.process.wait(STOP_SECS) == 1
            reached = outcomes["1"]
            eventually(lambda: outcomes["1"] > reached + 5)

            # the second one stops at once
            for drain_secs in (0.0, 0.2):
                config = of(path, drain_secs, description=f"new {drain_secs}")
                daemons.append(new := Daemon.begin(tmp_path, config, "--take-over"))
                new.until("serving")
                assert old.process.wait(STOP_SECS) == 0
                old, reached = new, outcomes["1"]
                eventually(lambda reached=reached: outcomes["1"] > reached + 50)
        assert set(outcomes) == {"1"}
        # the same replica, once it has freed the files of the predecessor
        eventually(lambda: replicas(old, "version") == before)
        assert old.stop() == 0
        # nobody uses it any more
        eventually(lambda: not process.is_running())
    finally:
        for each in daemons:
            each.kill()


def test_a_daemon_whose_only_model_fails_stops_in_order(cluster: Any, tmp_path: Path) -> None:
    broken = write_model(tmp_path, "version")
    (broken / "1" / "model.py").write_text(BROKEN)
    model = {"backend": "ray", "path": str(broken), "resources": {"cpus": 1}}
    daemon = Daemon.start(tmp_path, configuration(cluster.address, {"broken": model}))
    try:
        assert "not this file" in daemon.until("model failed to load")["reason"]
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_an_address_without_a_cluster_delays_nobody(tmp_path: Path) -> None:
    model = {"backend": "ray", "path": str(write_model(tmp_path, "version"))}
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    daemon = Daemon.start(
        tmp_path, configuration(address, {f"version{number}": model for number in range(8)})
    )
    try:
        assert "Connection refused" in daemon.until("model failed to load")["reason"]
        assert daemon.stop() == 0
    finally:
        daemon.kill()
