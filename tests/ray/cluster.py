"""A Ray cluster of several nodes on this machine, and a daemon whose models run on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from interlingua.runtime.ray_serve.options import ClusterOptions
from interlingua.runtime.ray_serve.start import environment
from tests.e2e.daemon import Daemon
from tests.waiting import eventually

DIALECTS = ["oip", "trtis", "graphpipe", "grps", "tfserving"]
STORE_BYTES = 100 << 20


@contextmanager
def ray_cluster(nodes: int, cpus: int = 4) -> Iterator[Any]:
    """``nodes`` raylets that believe to have ``cpus`` each: replicas reserve them, and use none while they
    wait."""
    os.environ.update(environment(ClusterOptions()))
    # a daemon finds a node that is gone in seconds instead of half a minute
    os.environ |= {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
    from ray.cluster_utils import Cluster

    head = {"num_cpus": cpus, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=cpus, object_store_memory=STORE_BYTES)
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def daemon_on(folder: Path, address: str, models: dict[str, Any], **more: Any) -> Iterator[Daemon]:
    """A daemon with ``models`` on the cluster at ``address``, which stops without leaving anything."""
    daemon = Daemon.start(folder, configuration(address, models, **more))
    try:
        yield daemon
        code = daemon.stop()
        assert code == 0, (code, daemon.log[-8:])
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


def configuration(address: str, models: dict[str, Any], **more: Any) -> dict[str, Any]:
    local = {"cpus": 4, "object_store_bytes": STORE_BYTES} if address == "local" else {}
    return {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "any", "dialects": DIALECTS}],
        "admin": {"listen": "127.0.0.1:0"},
        "ray": {"address": address, **local, **more.pop("ray", {})},
        "models": models,
        **more,
        "server": {"repository_poll_secs": 0.5, **more.get("server", {})},
    }


def until_ready(daemon: Daemon, model: str, ready: bool = True) -> None:
    """Wait until ``model`` is ready, or no longer is."""
    url = f"http://{daemon.addresses[0]}/v2/models/{model}/ready"
    eventually(lambda: (requests.get(url, timeout=10).status_code == 200) is ready)


def replicas(daemon: Daemon, model: str) -> list[dict[str, Any]]:
    """The replicas of ``model`` that run, as the admin address reports them."""
    report = requests.get(f"{daemon.admin}/ray", timeout=10).json()
    return [each for each in report["models"][model]["replicas"] if each["state"] == "RUNNING"]
