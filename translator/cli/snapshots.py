"""What ``interlingua top`` shows: the difference of two snapshots of the admin address."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import orjson

from interlingua.schemas import ErrorCode, InferenceError, Latencies
from interlingua.translator.admin.quantiles import quantile_ms
from interlingua.translator.cli.admin_address import answer

_BUCKET = re.compile(
    r'^interlingua_model_duration_seconds_bucket\{model="((?:[^"\\]|\\.)*)",[^}]*\} (\d+)', re.MULTILINE
)
"""A bucket in the text format of Prometheus, its label values with backslashes before quotes."""

_ESCAPED = re.compile(r"\\(.)")

BUCKETS = len(Latencies().counts)


@dataclass(frozen=True, slots=True)
class DaemonReports:
    """The reports of the admin address at ``secs``, on a monotonic clock. ``latencies`` are the counts of the
    buckets by model; ``processes`` are those of a server of several."""

    secs: float
    server: Mapping[str, Any]
    ready: Mapping[str, Any]
    models: Mapping[str, Any]
    upstreams: Mapping[str, Any]
    processes: Mapping[str, Any]
    latencies: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model between two snapshots. ``failed_per_sec`` is the part of ``requests_per_sec`` that failed, or
    was refused; latencies are those of the others. ``waiting`` is the length of the queue, None if it is on
    an upstream server."""

    model: str
    state: str
    requests_per_sec: float
    failed_per_sec: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    waiting: int | None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A server of an upstream between two snapshots."""

    upstream: str
    server: str
    state: str
    requests_per_sec: float
    failed_per_sec: float
    in_flight: int


@dataclass(frozen=True, slots=True)
class ServerProcessRow:
    """A process of a server of several; ``connections`` are those of a front end."""

    process: str
    pid: int
    ready: bool
    uptime_secs: float
    restarts: int
    connections: int | None


@dataclass(frozen=True, slots=True)
class DaemonView:
    """The server between two snapshots, busy models first."""

    name: str
    version: str
    uptime_secs: float
    ready: bool
    reason: str
    requests_per_sec: float
    failed_per_sec: float
    models: tuple[ModelRow, ...]
    upstreams: tuple[MemberRow, ...]
    processes: tuple[ServerProcessRow, ...]

    def document(self) -> dict[str, Any]:
        """As values of JSON."""
        return asdict(self)


def snapshot(connection: http.client.HTTPConnection) -> DaemonReports:
    """Query the admin address. Raises ``NoAnswerError``, and ``InferenceError`` if it is no admin address."""
    try:
        return DaemonReports(
            time.monotonic(),
            _report(connection, "/server"),
            _report(connection, "/health/ready", 503),
            _report(connection, "/models"),
            _report(connection, "/upstreams"),
            _report(connection, "/processes", 404),
            _latencies(_page(connection, "/metrics")[1].decode()),
        )
    finally:
        connection.close()


def _report(connection: http.client.HTTPConnection, path: str, also: int = 200) -> Mapping[str, Any]:
    status, body = _page(connection, path, also)
    # a server of one process has no report of several
    if status == 404:
        return {}
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise InferenceError(ErrorCode.BAD_UPSTREAM, f"{path} is no report: is that the admin address?")
    return found


def _page(connection: http.client.HTTPConnection, path: str, also: int = 200) -> tuple[int, bytes]:
    status, body = answer(connection, "GET", path)
    if status not in (200, also):
        raise InferenceError(ErrorCode.BAD_UPSTREAM, f"{path} answers {status}: is that the admin address?")
    return status, body


def _latencies(metrics: str) -> dict[str, list[int]]:
    """The counts of the buckets by model, of all its versions together."""
    cumulative: dict[str, list[int]] = {}
    for name, count in _BUCKET.findall(metrics):
        cumulative.setdefault(_ESCAPED.sub(r"\1", name), []).append(int(count))
    return {name: _counts(values) for name, values in cumulative.items()}


def _counts(cumulative: list[int]) -> list[int]:
    totals = [0] * BUCKETS
    for start in range(0, len(cumulative), BUCKETS):
        for place, (less, count) in enumerate(pairwise((0, *cumulative[start : start + BUCKETS]))):
            totals[place] += count - less
    return totals


def difference(old: DaemonReports, new: DaemonReports) -> DaemonView:
    """What happened from ``old`` to ``new``."""
    secs = max(new.secs - old.secs, 1e-9)
    models = [_model(name, old, new, secs) for name in new.models]
    models.sort(key=lambda row: (-row.requests_per_sec, row.model))
    return DaemonView(
        new.server["name"],
        new.server["version"],
        new.server["uptime_secs"],
        new.ready["ready"],
        "; ".join(map(str, new.ready.get("reasons", ()))),
        sum(row.requests_per_sec for row in models),
        sum(row.failed_per_sec for row in models),
        tuple(models),
        tuple(_members(old, new, secs)),
        tuple(_process(name, each) for name, each in new.processes.items()),
    )


def _model(name: str, old: DaemonReports, new: DaemonReports, secs: float) -> ModelRow:
    versions, before = new.models[name]["versions"], old.models.get(name, {}).get("versions", ())
    waiting = [each["waiting"] for each in versions if each.get("waiting") is not None]
    counts = [
        max(count - less, 0)
        for count, less in zip(
            new.latencies.get(name, [0] * BUCKETS), old.latencies.get(name, [0] * BUCKETS), strict=True
        )
    ]
    p50, p95, p99 = (quantile_ms(Latencies(counts), at) for at in (0.5, 0.95, 0.99))
    return ModelRow(
        name,
        new.models[name]["state"],
        _rate(sum(map(_requests, versions)) - sum(map(_requests, before)), secs),
        _rate(sum(map(_failures, versions)) - sum(map(_failures, before)), secs),
        p50,
        p95,
        p99,
        sum(waiting) if waiting else None,
    )


def _requests(version: Mapping[str, Any]) -> int:
    """All requests: the report counts those that succeeded, and failures by their code."""
    return int(version.get("requests", 0)) + _failures(version)


def _failures(version: Mapping[str, Any]) -> int:
    failures: Mapping[str, int] = version.get("failures", {})
    return sum(failures.values()) + int(version.get("refused", 0))


def _members(old: DaemonReports, new: DaemonReports, secs: float) -> list[MemberRow]:
    before = {
        (name, each["url"]): each for name, upstream in old.upstreams.items() for each in upstream["servers"]
    }
    rows = []
    for name, upstream in new.upstreams.items():
        for each in upstream["servers"]:
            was = before.get((name, each["url"]), each)
            sent, failed = (_rate(each[key] - was[key], secs) for key in ("requests", "failures"))
            rows.append(MemberRow(name, each["url"], each["state"], sent, failed, each["outstanding"]))
    return rows


def _process(name: str, report: Mapping[str, Any]) -> ServerProcessRow:
    return ServerProcessRow(
        name,
        report["pid"],
        report["ready"],
        report["uptime_secs"],
        report["restarts"],
        report.get("connections"),
    )


def _rate(count: int, secs: float) -> float:
    # a reload or a restarted process may begin at zero
    return round(max(count, 0) / secs, 1)
