"""What a configuration states about models on Ray, as plain values: nothing here needs Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LOCAL = "local"
"""The address of a cluster that this process starts, and stops with itself."""

AUTO = "auto"
"""The address of the cluster that runs on this machine."""

DEPLOYMENT = "model"
"""The name of the only deployment of an application of Serve."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """A cluster: its ``address``, or a local one with so many ``cpus`` (0: those of the machine) and an
    object store of ``object_store_bytes`` (0: Ray's default), whose processes bind ``bind``. Other daemons
    use the same deployments if they are ``shared``, so that none deletes them. A request fails after
    ``request_timeout_secs``, a load after ``load_timeout_secs``."""

    address: str = LOCAL
    namespace: str = "interlingua"
    bind: str = "127.0.0.1"
    cpus: int = 0
    object_store_bytes: int = 0
    shared: bool = False
    request_timeout_secs: float = 60.0
    load_timeout_secs: float = 120.0


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """Between ``least`` and ``most`` replicas, so many that each has ``target_ongoing`` requests. Serve waits
    ``up_delay_secs`` before it adds replicas, ``down_delay_secs`` before it removes some, and averages over
    ``window_secs``."""

    least: int
    most: int
    target_ongoing: float = 2.0
    up_delay_secs: float = 5.0
    down_delay_secs: float = 60.0
    window_secs: float = 10.0


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """The deployment of one model. ``cpus``, ``gpus``, ``memory_bytes`` (0: not reserved) and ``custom``
    resources are reserved for each replica. ``max_queued`` requests of this process may wait for a replica
    that runs fewer than ``max_ongoing``; -1 for no limit. ``max_per_node`` 0 is no limit; ``labels`` are
    those that a node has to have."""

    cluster: ClusterOptions = ClusterOptions()
    replicas: int | Autoscaling = 1
    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int = 0
    custom: Mapping[str, float] = field(default_factory=dict)
    max_ongoing: int = 100
    max_queued: int = 1000
    max_per_node: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def actor(self) -> dict[str, Any]:
        """The options of the actor of a replica, as Ray takes them."""
        found: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus}
        if self.memory_bytes:
            found["memory"] = self.memory_bytes
        if self.custom:
            found["resources"] = dict(self.custom)
        if self.labels:
            found["label_selector"] = dict(self.labels)
        return found

    def serve(self) -> dict[str, Any]:
        """The options of the deployment, as Serve takes them."""
        found: dict[str, Any] = {
            "ray_actor_options": self.actor(),
            "max_ongoing_requests": self.max_ongoing,
            "max_queued_requests": self.max_queued,
            # a replica that is removed finishes its requests
            "graceful_shutdown_timeout_s": self.cluster.request_timeout_secs,
        }
        if self.max_per_node:
            found["max_replicas_per_node"] = self.max_per_node
        if isinstance(self.replicas, int):
            return {**found, "num_replicas": self.replicas}
        scaling = self.replicas
        found["autoscaling_config"] = {
            "min_replicas": scaling.least,
            "initial_replicas": scaling.least,
            "max_replicas": scaling.most,
            "target_ongoing_requests": scaling.target_ongoing,
            "upscale_delay_s": scaling.up_delay_secs,
            "downscale_delay_s": scaling.down_delay_secs,
            "look_back_period_s": scaling.window_secs,
        }
        return found
