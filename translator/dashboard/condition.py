"""The condition of the server in one word, with reasons: ready, degraded, or not ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from interlingua.runtime.models.model import UNLOADED

_MAX_REASONS = 20


def condition(reports: Mapping[str, Any]) -> dict[str, Any]:
    """``state`` is ``ready``, ``degraded`` (it serves, but parts are missing: members of upstreams are
    ejected or not ready, models have failed, processes are starting again) or ``not ready``."""
    ready = reports["ready"]
    if not ready["ready"]:
        return {"state": "not ready", "reasons": ready["reasons"][:_MAX_REASONS]}
    reasons = list(_missing(reports))
    return {"state": "degraded" if reasons else "ready", "reasons": reasons[:_MAX_REASONS]}


def _missing(reports: Mapping[str, Any]) -> Iterator[str]:
    for name, upstream in reports["upstreams"].items():
        for server in upstream["servers"]:
            if server["state"] != "in use":
                why = f": {server['last_failure']}" if server["last_failure"] else ""
                yield f"upstream {name}: server {server['url']} is {server['state']}{why}"
    for name, model in reports["models"].items():
        if model["state"] == "UNAVAILABLE" and UNLOADED not in model["reason"]:
            yield f"model {name} is unavailable" + (f": {model['reason']}" if model["reason"] else "")
    for name, process in reports.get("processes", {}).items():
        if not process["ready"]:
            yield f"process {name} is not ready"
