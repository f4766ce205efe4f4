"""Metrics and reports of upstreams: each server of a pool, and the limits on requests in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.translator.admin.merging import Rules, first, merged, without, worst
from interlingua.translator.admin.metrics import Family, Kind, Sample


def families(upstreams: Mapping[str, Upstream]) -> Iterator[Family]:
    servers = [
        ({"upstream": name, "server": member.url}, member)
        for name, upstream in upstreams.items()
        for member in upstream.pool.members
    ]
    for name, kind, text, value in _OF_SERVERS:
        samples = [Sample(value(member), labels) for labels, member in servers]
        yield Family(f"interlingua_upstream_server_{name}", kind, text, samples)
    gates = [
        ({"upstream": name}, gate) for name, each in upstreams.items() if (gate := each.gate) is not None
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


def _merge_servers(these: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # each process follows the names of hosts by itself
    known = {each["url"]: each for each in these}
    for other in others:
        url = other["url"]
        known[url] = merged(known[url], other, MERGING) if url in known else other
    return list(known.values())


def merge(these: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """The reports of two processes as one. A process that does not follow an upstream has the servers of its
    start: a process that does follow it knows which of them are still there."""
    found: dict[str, Any] = merged(these, others, MERGING)
    for name in these.keys() & others.keys():
        one, other = these[name], others[name]
        if one["followed"] is not other["followed"]:
            followed, rest = (one, other) if one["followed"] else (other, one)
            there = {each["url"] for each in followed["servers"]}
            known = [each for each in rest["servers"] if each["url"] in there]
            found[name]["servers"] = _merge_servers(followed["servers"], known)
    return found


MERGING: Rules = {
    "followed": lambda one, other: one or other,
    "servers": _merge_servers,
    "url": first,
    "state": worst("in use", "not ready", "ejected"),
    "breaker": worst("closed", "half-open", "open"),
    "weight": first,
    "zone": first,
    "probed": lambda one, other: one or other,
}
"""How the reports of two processes become one."""

GAUGES = frozenset({"outstanding", "under_way", "waiting", "bytes"})


def without_process(report: Any) -> Any:
    """What stays of a report when its process has exited."""
    return {
        name: {
            "followed": False,
            "servers": [
                {**without(server, GAUGES), "state": "in use", "breaker": "closed", "last_failure": ""}
                for server in upstream["servers"]
            ],
        }
        for name, upstream in report.items()
    }


def _upstream(upstream: Upstream) -> dict[str, Any]:
    found: dict[str, Any] = {
        "followed": upstream.pool.watched,
        "servers": [_server(member) for member in upstream.pool.members],
    }
    if (gate := upstream.gate) is not None:
        found["limited"] = {"under_way": gate.running, "waiting": gate.waiting, "bytes": gate.nbytes}
    return found


def _server(member: Member) -> dict[str, Any]:
    return {
        "url": member.url,
        "state": state_of(member),
        "breaker": "closed" if not member.open else "half-open" if member.trying else "open",
        "probed": member.probed,
        "weight": member.weight,
        "zone": member.zone,
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


def _in_use(member: Member) -> bool:
    return member.ready and not member.open


_OF_SERVERS: tuple[tuple[str, Kind, str, Callable[[Member], float]], ...] = (
    ("in_use", "gauge", "Whether a server receives requests: it is ready and not ejected.", _in_use),
    ("ejected", "gauge", "Whether a server is ejected because of failures.", attrgetter("open")),
    ("outstanding", "gauge", "Requests in flight to a server.", attrgetter("running")),
    ("requests_total", "counter", "Requests sent to a server.", attrgetter("requests")),
    ("failures_total", "counter", "Failures of a server, probes included.", attrgetter("failures")),
    ("ejections_total", "counter", "Ejections of a server because of failures.", attrgetter("ejections")),
)
"""Name, kind, help and value of the metrics of each server of an upstream."""
