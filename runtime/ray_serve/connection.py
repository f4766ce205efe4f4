"""The connection of this process to a Ray cluster: the driver, of which a process can have one.

The calls of Ray's driver block, so each runs in a thread of :class:`Connection`. The thread that starts a
local cluster lives as long as that: Linux ends the processes of the cluster with the thread (``prctl(2)``,
PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.ray_serve import leaving
from interlingua.runtime.ray_serve.options import AUTO, LOCAL, ClusterOptions
from interlingua.runtime.ray_serve.signals import kept_signals

CONTROLLER = "SERVE_CONTROLLER_ACTOR"
_SERVE_NAMESPACE = "serve"

_AUTH_MODE = "RAY_AUTH_MODE"

_RUNNING = frozenset({"RUNNING", "UPDATING", "RECOVERING", "PENDING_MIGRATION"})

LOOK_SECS = 5.0
"""The timeout of one question to the cluster."""


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """A replica, by Serve's id, with its state, its node and its process."""

    replica: str
    state: str
    node: str
    address: str
    process: int


@dataclass(frozen=True, slots=True)
class Application:
    """An application as Serve reports it. ``message`` is why it is not running."""

    status: str
    deployment: str
    message: str
    replicas: tuple[ReplicaPlace, ...]

    @property
    def running(self) -> tuple[ReplicaPlace, ...]:
        """The replicas that run. Serve sends nothing to one while it loads other files, for a moment; those
        that a controller finds when it has been started again answer meanwhile."""
        return tuple(each for each in self.replicas if each.state in _RUNNING)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster, with its resources."""

    id: str
    address: str
    alive: bool
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one time: its nodes, and the applications of Serve by name."""

    nodes: tuple[Node, ...] = ()
    applications: dict[str, Application] = field(default_factory=dict)


def connect(options: ClusterOptions) -> None:
    """Connect to the cluster, or start a local one, and start Serve there without its proxies. Blocks.
    Raises what Ray raises."""
    if options.address not in (LOCAL, AUTO):
        _reach(options.address)
    import ray
    from ray import serve

    leaving.connected = True
    _route_logs()
    stated: dict[str, Any] = {
        "namespace": options.namespace,
        "log_to_driver": False,
        "configure_logging": False,
        "ignore_reinit_error": False,
    }
    if options.address == LOCAL:
        stated |= {"address": "local", "include_dashboard": False, "_node_ip_address": options.bind}
        if options.cpus:
            stated["num_cpus"] = options.cpus
        if options.object_store_bytes:
            stated["object_store_memory"] = options.object_store_bytes
    else:
        stated["address"] = options.address
    with warnings.catch_warnings(), kept_signals():
        warnings.simplefilter("ignore")
        # at the start it warns of its handlers of signals, which are not used, and of its defaults
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            ray.init(**stated)
        except ConnectionError as error:
            # Ray does not say that the token is missing
            hint = "" if _AUTH_MODE in os.environ else f"; with tokens, Ray's default, set {_AUTH_MODE}=token"
            raise ConnectionError(f"{error}{hint}") from error
        serve.start(proxy_location="Disabled")
    logging.getLogger("ray").setLevel(logging.WARNING)


def _reach(address: str) -> None:
    """Raise ``OSError`` if nothing listens at ``address``: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ConnectionError(f"'{address}' has no port")
    socket.create_connection((host.strip("[]"), int(port)), LOOK_SECS).close()


def disconnect() -> None:
    """End the connection, and a cluster that :func:`connect` has started. Blocks."""
    import ray
    from ray.serve import context

    with contextlib.suppress(Exception):  # the cluster may be lost
        client = context._global_client
        if client is not None:
            client.shutdown_cached_handles()
    context._set_global_client(None)
    with kept_signals():
        ray.shutdown()


def put(array: NDArray[np.uint8]) -> Any:
    """The reference of ``array`` in the object store, which copies it. Blocks. Raises what Ray raises."""
    import ray

    return ray.put(array)


def look() -> ClusterView:
    """The cluster now. Blocks. Raises what Ray raises if the cluster is gone, or the node of this process."""
    import ray
    from ray.experimental import internal_kv

    here = ray.get_runtime_context().get_node_id()
    # ``ray.nodes()`` has no timeout, and aborts the process if another cluster answers in place of this one
    known = internal_kv.internal_kv_get_gcs_client().get_all_node_info(timeout=LOOK_SECS)
    nodes = tuple(_node(each) for each in known.values())
    if not any(each.alive and each.id == here for each in nodes):
        raise ConnectionError("the Ray node of this process is gone")
    controller = ray.get_actor(CONTROLLER, namespace=_SERVE_NAMESPACE)
    details = ray.get(controller.get_serve_instance_details.remote(), timeout=LOOK_SECS)
    return ClusterView(
        nodes, {name: _application(each) for name, each in dict(details.get("applications") or {}).items()}
    )


def _node(node: Any) -> Node:
    """``node`` is a ``GcsNodeInfo``."""
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    resources = node.resources_total
    return Node(
        node.node_id.hex(),
        node.node_manager_address,
        node.state == GcsNodeInfo.ALIVE,
        resources.get("CPU", 0.0),
        resources.get("GPU", 0.0),
    )


def _application(details: dict[str, Any]) -> Application:
    deployments = list(dict(details.get("deployments") or {}).values())
    replicas = tuple(
        ReplicaPlace(
            each["replica_id"],
            str(getattr(each["state"], "value", each["state"])),
            each.get("node_id") or "",
            each.get("node_ip") or "",
            each.get("pid") or 0,
        )
        for deployment in deployments
        for each in deployment.get("replicas") or ()
    )
    status = str(getattr(details["status"], "value", details["status"]))
    states = [str(getattr(each["status"], "value", each["status"])) for each in deployments]
    messages = [details.get("message") or "", *(each.get("message") or "" for each in deployments)]
    return Application(status, states[0] if states else "", "\n".join(filter(None, messages)), replicas)


def _route_logs() -> None:
    """Have the warnings of Ray in the log of the daemon, without Ray's own handlers."""
    for name in ("ray", "ray.serve"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
