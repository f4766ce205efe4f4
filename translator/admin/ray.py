"""Metrics and reports of models on Ray: the nodes of the cluster, the replicas of each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from interlingua.runtime.ray_serve.report import cluster_report
from interlingua.translator.admin.metrics import Family, Sample


def report() -> dict[str, Any] | None:
    """The cluster, its nodes, and every model with its replicas; None without a cluster."""
    found = cluster_report()
    return None if found is None else asdict(found)


def families() -> Iterator[Family]:
    found = cluster_report()
    if found is None:
        return
    connected = [Sample(found.connected, {"address": found.address})]
    yield Family("interlingua_ray_connected", "gauge", "Whether the Ray cluster is connected.", connected)
    alive = Counter("alive" if node.alive else "dead" for node in found.nodes)
    nodes = [Sample(alive[state], {"state": state}) for state in ("alive", "dead")]
    yield Family("interlingua_ray_nodes", "gauge", "Nodes of the Ray cluster.", nodes)
    replicas = [
        Sample(count, {"model": name, "state": state})
        for name, model in found.models.items()
        for state, count in sorted({"RUNNING": 0, **Counter(each.state for each in model.replicas)}.items())
    ]
    yield Family("interlingua_ray_replicas", "gauge", "Replicas of a model on Ray.", replicas)


def merge(these: dict[str, Any] | None, others: dict[str, Any] | None) -> dict[str, Any] | None:
    """One process of a server has the cluster."""
    return others if these is None else these


def without_process(report: dict[str, Any] | None) -> dict[str, Any] | None:
    """What stays of a report when its process has exited."""
    if report is None:
        return None
    return {**report, "connected": False, "reason": "its process has exited", "nodes": (), "models": {}}
