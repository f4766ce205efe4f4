"""SIGHUP: other replicas, a model that goes and comes back, a reload that is refused. One node."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.e2e.daemon import Daemon
from tests.ray.cluster import daemon_on, replicas, until_ready
from tests.ray.models import write_model
from tests.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reload")


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    models = {
        name: {"backend": "ray", "path": str(write_model(folder, name)), "resources": {"cpus": 0.1}}
        for name in ("totals", "slow")
    }
    models["totals"]["replicas"] = 2
    with daemon_on(folder, "local", models) as running:
        yield running


def reload(daemon: Daemon, folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Reload the configuration with ``change``; waits until it is in force or refused."""
    file = folder / "config.yaml"
    config = yaml.safe_load(file.read_text())
    change(config["models"])
    file.write_text(yaml.safe_dump(config))
    before = reloads(daemon)
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: reloads(daemon) > before)


def reloads(daemon: Daemon) -> int:
    return sum(line["event"] in ("configuration reloaded", "reload refused") for line in daemon.log)


def send(daemon: Daemon, model: str, value: float, **parameters: Any) -> requests.Response:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [value]}
    url = f"http://{daemon.addresses[0]}/v2/models/{model}/infer"
    return requests.post(url, json={"inputs": [tensor], "parameters": parameters}, timeout=60)


def answer(response: requests.Response) -> float:
    assert response.status_code == 200, response.text
    found: float = response.json()["outputs"][0]["data"][0]
    return found


def all_replicas(daemon: Daemon, model: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = requests.get(f"{daemon.admin}/ray", timeout=10).json()["models"][model][
        "replicas"
    ]
    return found


def test_a_reload_leaves_sequences_and_what_runs(daemon: Daemon, folder: Path) -> None:
    until_ready(daemon, "totals")
    keys = range(1, 9)
    for key in keys:
        answer(send(daemon, "totals", key, sequence_id=key, sequence_start=True))

    # another number of replicas: the sequences go on where they are
    reload(daemon, folder, lambda models: models["totals"].update(replicas=3))
    for key in keys:
        assert answer(send(daemon, "totals", 1, sequence_id=key)) == key + 1
    eventually(lambda: len(replicas(daemon, "totals")) == 3)

    # a reload that is refused: the number of replicas is as before
    def refused(models: dict[str, Any]) -> None:
        models["totals"].update(replicas=4)
        models["none"] = {"backend": "onnxruntime", "path": str(folder / "none")}

    reload(daemon, folder, refused)
    assert daemon.log[-1]["event"] == "reload refused", daemon.log[-3:]
    for key in keys:
        assert answer(send(daemon, "totals", 1, sequence_id=key, sequence_end=True)) == key + 2
    # Serve lists those that end until they have
    eventually(lambda: [each["state"] for each in all_replicas(daemon, "totals")] == ["RUNNING"] * 3)
    reload(daemon, folder, lambda models: (models["totals"].update(replicas=3), models.pop("none")))

    # a model that goes while it runs a request, and comes back before that ends
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(send, daemon, "slow", 8)
        daemon.until_in_flight(1)
        file = folder / "config.yaml"
        whole = yaml.safe_load(file.read_text())["models"]["slow"]
        reload(daemon, folder, lambda models: models.pop("slow"))
        assert send(daemon, "slow", 0).status_code == 404
        reload(daemon, folder, lambda models: models.update(slow=whole))
        assert answer(send(daemon, "slow", 0.25)) == 0.25
        assert answer(running.result()) == 8
    # its predecessor is gone now, and leaves it alone
    for _ in range(20):
        assert answer(send(daemon, "slow", 0.25)) == 0.25
    until_ready(daemon, "slow")

    # a model that goes, and comes back at once
    reload(daemon, folder, lambda models: models.pop("slow"))
    reload(daemon, folder, lambda models: models.update(slow=whole))
    for _ in range(20):
        assert answer(send(daemon, "slow", 0.25)) == 0.25
