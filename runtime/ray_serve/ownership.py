"""Which daemon owns a deployment: the last one that has begun to use it, so that its predecessor leaves it.

A daemon that takes over deploys what its predecessor still serves, which then stops. The mark of the owner is
in the control store of the cluster, with the plan of the deployment: a successor whose files do not load puts
that plan back.
"""

from __future__ import annotations

import pickle
from importlib.metadata import version
from typing import Any, NamedTuple

from ray.experimental import internal_kv

_NAMESPACE = b"interlingua"

_STORE_SECS = 5.0
"""The timeout of one call of the control store; Ray's own is endless when the cluster is lost."""


class Mark(NamedTuple):
    """The token of the ``owner``, and the ``plan`` in force; None if another version of this package has made
    it, whose plans this one cannot read."""

    owner: str
    plan: Any


def read_mark(application: str) -> Mark | None:
    """None for a deployment that no daemon has marked. Blocks. Raises what Ray raises."""
    found = internal_kv.internal_kv_get_gcs_client().internal_kv_get(
        application.encode(), _NAMESPACE, timeout=_STORE_SECS
    )
    if found is None:
        return None
    owner, program, plan = pickle.loads(found)  # noqa: S301 - of the cluster, whose ports execute code anyway
    return Mark(owner, pickle.loads(plan) if program == version("interlingua") else None)  # noqa: S301


def write_mark(application: str, mark: Mark) -> None:
    """Blocks. Raises what Ray raises."""
    value = pickle.dumps((mark.owner, version("interlingua"), pickle.dumps(mark.plan)))
    internal_kv.internal_kv_get_gcs_client().internal_kv_put(
        application.encode(), value, True, _NAMESPACE, timeout=_STORE_SECS
    )


def erase_mark(application: str) -> None:
    """Blocks. Raises what Ray raises."""
    internal_kv.internal_kv_get_gcs_client().internal_kv_del(
        application.encode(), False, _NAMESPACE, timeout=_STORE_SECS
    )
