"""What operators are told of the upstreams: each server of a pool, and the limits on what is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.translator.admin.metrics import Family, Kind, Sample


def families(upstreams: Mapping[str, Upstream]) -> Iterator[Family]:
    """What is known of the servers, by upstream and URL."""
    servers = [
        ({"upstream": name, "server": member.url}, member)
        for name, upstream in upstreams.items()
        for member in upstream.pool.members
    ]
    for name, kind, text, value in _OF_SERVERS:
        yield Family(name, kind, text, [Sample(value(member), labels) for labels, member in servers])
    gates = [
        ({"upstream": name}, upstream.gate)
        for name, upstream in upstreams.items()
        if upstream.gate is not None
    ]
    if gates:
        yield Family(
            "interlingua_upstream_limited_requests",
            "gauge",
            "Inference requests to upstreams with a limit: how many are under way, and how many wait.",
            [
                Sample(count, {**labels, "state": state})
                for labels, gate in gates
                for state, count in (("under_way", gate.running), ("waiting", gate.waiting))
            ],
        )
        yield Family(
            "interlingua_upstream_limited_bytes",
            "gauge",
            "Bytes of the inference requests under way to upstreams with a limit.",
            [Sample(gate.nbytes, labels) for labels, gate in gates],
        )


def report(upstreams: Mapping[str, Upstream]) -> dict[str, Any]:
    """Every upstream by name: its servers, and what its limits hold."""
    return {name: _upstream(upstream) for name, upstream in upstreams.items()}


def _upstream(upstream: Upstream) -> dict[str, Any]:
    told: dict[str, Any] = {"servers": [_server(member) for member in upstream.pool.members]}
    if upstream.gate is not None:
        gate = upstream.gate
        told["limited"] = {"under_way": gate.running, "waiting": gate.waiting, "bytes": gate.nbytes}
    return told


def _server(member: Member) -> dict[str, Any]:
    return {
        "url": member.url,
        "state": state_of(member),
        "breaker": _breaker(member),
        "probed": member.probed,
        "outstanding": member.running,
        "requests": member.asked,
        "failures": member.failures,
        "ejections": member.ejections,
        "last_failure": member.reason,
    }


def state_of(member: Member) -> str:
    """``in use``, ``not ready`` where it says so itself, or ``ejected``."""
    if member.open:
        return "ejected"
    return "in use" if member.ready else "not ready"


def _breaker(member: Member) -> str:
    if not member.open:
        return "closed"
    return "half-open" if member.trying else "open"


_OF_SERVERS: tuple[tuple[str, Kind, str, Callable[[Member], float]], ...] = (
    (
        "interlingua_upstream_server_in_use",
        "gauge",
        "Whether a server of an upstream takes requests: neither left out for its failures nor not ready.",
        lambda member: member.ready and not member.open,
    ),
    (
        "interlingua_upstream_server_ejected",
        "gauge",
        "Whether a server of an upstream is left out for its failures.",
        lambda member: member.open,
    ),
    (
        "interlingua_upstream_server_outstanding",
        "gauge",
        "Requests that a server of an upstream is asked now.",
        lambda member: member.running,
    ),
    (
        "interlingua_upstream_server_requests_total",
        "counter",
        "Requests that a server of an upstream was asked.",
        lambda member: member.asked,
    ),
    (
        "interlingua_upstream_server_failures_total",
        "counter",
        "How often a server of an upstream has failed, probes included.",
        lambda member: member.failures,
    ),
    (
        "interlingua_upstream_server_ejections_total",
        "counter",
        "How often a server of an upstream was left out for its failures.",
        lambda member: member.ejections,
    ),
)
