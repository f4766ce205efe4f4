"""The entry of models on Ray: what Ray reads when it is imported is stated before."""

from __future__ import annotations

import os

from interlingua.runtime.ray_serve.options import LOCAL, ClusterOptions, DeploymentOptions
from interlingua.runtime.repository.files import ModelSource
from interlingua.runtime.target import Target

LOOPBACK = "127.0.0.1"


def load_model(source: ModelSource, options: DeploymentOptions, before: Target | None) -> Target:
    """As ``load.load_model``."""
    for name, value in environment(options.cluster).items():
        os.environ.setdefault(name, value)
    from interlingua.runtime.ray_serve import load

    return load.load_model(source, options, before)


def environment(options: ClusterOptions) -> dict[str, str]:
    """The environment of Ray, in this process and in those of a local cluster."""
    found = {
        # no reports to the makers of Ray
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray ends a driver that has lost the control store; this one connects again
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**8),
    }
    if options.address == LOCAL and options.bind == LOOPBACK:
        # for one machine, the address of a node is 127.0.0.1, and its servers bind that alone
        found["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return found
