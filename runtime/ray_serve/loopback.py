"""Keeps a replica of a cluster for one machine to that machine.

Each replica of Serve has a gRPC server for calls of other deployments, which takes pickles, without
credentials, on every interface; there is no option for its address. Nothing here calls it.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.serve._private import replica

_EVERY_INTERFACE = "[::]:"


def bind_to_loopback() -> None:
    """Have that server bind 127.0.0.1 if the node of this process has that address. Call it before Serve
    starts the server: when the class of the replica is imported."""
    if ray.util.get_node_ip_address() != "127.0.0.1":
        return
    bind = replica.add_port_to_grpc_server

    def bound(server: Any, address: str) -> Any:
        return bind(server, address.replace(_EVERY_INTERFACE, "127.0.0.1:"))

    replica.add_port_to_grpc_server = bound
