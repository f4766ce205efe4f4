"""The cluster of this process as reports have it: plain values, as they were seen last."""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.runtime.ray_serve.cluster import current
from interlingua.runtime.ray_serve.connection import Node, ReplicaPlace


@dataclass(frozen=True, slots=True)
class ModelReplicas:
    """A model: whether it is ``ready``, for the ``reason`` if not, Serve's ``status``, its replicas."""

    ready: bool
    reason: str
    status: str
    replicas: tuple[ReplicaPlace, ...]


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A cluster: whether this process is ``connected``, for the ``reason`` if not, its nodes, and the models
    of this process by name."""

    address: str
    connected: bool
    reason: str
    nodes: tuple[Node, ...]
    models: dict[str, ModelReplicas]


def cluster_report() -> ClusterReport | None:
    """None for a process without a cluster."""
    cluster = current()
    if cluster is None:
        return None
    view = cluster.view
    models = {}
    for name, deployment in sorted(dict(cluster.deployments).items()):
        seen, state = deployment.seen_now, deployment.state
        models[name] = ModelReplicas(
            state.ready,
            state.reason,
            "" if seen is None else seen.deployment,
            () if seen is None else seen.replicas,
        )
    return ClusterReport(
        cluster.options.address,
        view is not None,
        cluster.reason,
        () if view is None else view.nodes,
        models,
    )
