"""Metrics and reports of upstreams: each server of a pool, and the limits on requests in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.translator.admin.metrics import Family, Kind, Sample


def families(upstreams: Mapping[str, Upstream]) -> Iterator[Family]:
    """The metrics of the servers, by upstream and URL."""
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
            "Inference requests to upstreams with a limit: in flight (under_way) and waiting.",
            [
                Sample(count, {**labels, "state": state})
                for labels, gate in gates
                for state, count in (("under_way", gate.running), ("waiting", gate.waiting))
            ],
        )
        yield Family(
            "interlingua_upstream_limited_bytes",
            "gauge",
            "Bytes of inference requests in flight to upstreams with a limit.",
            [Sample(gate.nbytes, labels) for labels, gate in gates],
        )


def report(upstreams: Mapping[str, Upstream]) -> dict[str, Any]:
    """Every upstream by name: its servers, and the usage of its limits."""
    return {name: _upstream(upstream) for name, upstream in upstreams.items()}


def _upstream(upstream: Upstream) -> dict[str, Any]:
    found: dict[str, Any] = {"servers": [_server(member) for member in upstream.pool.members]}
    if upstream.gate is not None:
        gate = upstream.gate
        found["limited"] = {"under_way": gate.running, "waiting": gate.waiting, "bytes": gate.nbytes}
    return found


def _server(member: Member) -> dict[str, Any]:
    return {
        "url": member.url,
        "state": state_of(member),
        "breaker": _breaker(member),
        "probed": member.probed,
        "outstanding": member.running,
        "requests": member.requests,
        "failures": member.failures,
        "ejections": member.ejections,
        "last_failure": member.reason,
    }


def state_of(member: Member) -> str:
    """``in use``, ``not ready`` (as the server reports), or ``ejected``."""
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
        "Whether a server of an upstream receives requests: it is ready and not ejected.",
        lambda member: member.ready and not member.open,
    ),
    (
        "interlingua_upstream_server_ejected",
        "gauge",
        "Whether a server of an upstream is ejected because of failures.",
        lambda member: member.open,
    ),
    (
        "interlingua_upstream_server_outstanding",
        "gauge",
        "Requests in flight to a server of an upstream.",
        lambda member: member.running,
    ),
    (
        "interlingua_upstream_server_requests_total",
        "counter",
        "Requests sent to a server of an upstream.",
        lambda member: member.requests,
    ),
    (
        "interlingua_upstream_server_failures_total",
        "counter",
        "Failures of a server of an upstream, probes included.",
        lambda member: member.failures,
    ),
    (
        "interlingua_upstream_server_ejections_total",
        "counter",
        "Ejections of a server of an upstream because of failures.",
        lambda member: member.ejections,
    ),
)
