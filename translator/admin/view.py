"""The content of the dashboard: tables and charts of plain text, independent of HTML.

The page and its refreshes render it. Every cell is text and a tone. It is derived from the reports, so that
both agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from interlingua.schemas import Metrics

Tone = Literal["", "good", "bad", "warn"]
Cell = tuple[str, Tone]
Reports = Mapping[str, Any]
"""Reports by name, as parsed JSON."""

CHART_WIDTH, CHART_HEIGHT = 300, 60
"""The coordinate range of a chart's points."""

_NOTHING = "-"
_SECONDS = 60
_TONES: Mapping[str, Tone] = {
    "READY": "good",
    "in use": "good",
    "closed": "good",
    "LOADING": "warn",
    "UNLOADING": "warn",
    "not ready": "warn",
    "half-open": "warn",
    "UNAVAILABLE": "bad",
    "ejected": "bad",
    "open": "bad",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under ``columns``, of which ``numeric`` hold numbers. ``empty`` replaces a table without
    rows."""

    id: str
    caption: str
    columns: tuple[str, ...]
    numeric: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A line through ``points`` (``x,y``, y downwards); ``summary`` describes it in words."""

    id: str
    caption: str
    latest: str
    summary: str
    points: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The whole dashboard. ``state`` is the headline, ``facts`` are terms with values, ``links`` lead to the
    other pages."""

    title: str
    state: Cell
    facts: tuple[tuple[str, str], ...]
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    links: tuple[str, ...]


def view(ready: Mapping[str, Any], metrics: Metrics, reports: Reports) -> Dashboard:
    """The dashboard of ``reports``, of ``metrics`` over the last minute, and of the readiness."""
    server = reports["server"]
    return Dashboard(
        server["name"],
        _state(ready),
        (
            ("Version", server["version"]),
            ("Identity", server["id"]),
            ("Up for", _span(server["uptime_secs"])),
            *((f"Latency {name}", f"{metrics.latencies_ms[at]:g} ms") for name, at in _SHOWN_QUANTILES),
        ),
        tuple(_chart(metrics, *chart) for chart in _CHARTS),
        (
            _listeners(server["listeners"]),
            _models(reports["models"]),
            _upstreams(reports["upstreams"]),
            _routes(reports["routes"]),
            _mirrors(reports["mirror"]["mirrors"]),
            *([_replicas(reports["ray"])] if reports.get("ray") else []),
            *([_processes(reports["processes"])] if "processes" in reports else []),
        ),
        ("metrics", "health/live", "health/ready", *reports),
    )


_SHOWN_QUANTILES = (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999))

_CHARTS = (
    ("requests_per_second", "Inferences per second", ""),
    ("latency_mean_ms", "Mean latency", " ms"),
    ("failed_percent", "Failed", " %"),
    ("cpu_percent", "Processor time", " %"),
)


def _chart(metrics: Metrics, name: str, caption: str, unit: str) -> Chart:
    # the last second is incomplete
    values = metrics.trends[name][-_SECONDS:-1]
    highest = max(values)
    # the bottom is zero, the top the maximum
    scale = CHART_HEIGHT / highest if highest else 0.0
    step = CHART_WIDTH / (len(values) - 1)
    points = " ".join(
        f"{place * step:.1f},{CHART_HEIGHT - value * scale:.1f}" for place, value in enumerate(values)
    )
    latest = f"{values[-1]:g}{unit}"
    return Chart(
        name,
        caption,
        latest,
        f"{caption}: now {latest}, maximum {highest:g}{unit} in the last minute",
        points,
    )


def _state(ready: Mapping[str, Any]) -> Cell:
    if ready["ready"]:
        return "Ready", "good"
    return f"Not ready: {'; '.join(ready['reasons'])}", "bad"


def _listeners(listeners: Iterable[Mapping[str, Any]]) -> Table:
    numbers = ("Requests", "In flight", "Failed", "Shed", "Cancelled", "Received", "Sent")
    rows = tuple(
        (
            _text(each["address"]),
            _text(each["transport"]),
            _text(dialect),
            _number(counted["requests"]),
            _number(counted["in_flight"]),
            _fault(_failed(counted)),
            _fault(counted["shed"]),
            _number(counted["cancelled"]),
            _text(_bytes(counted["received_bytes"])),
            _text(_bytes(counted["sent_bytes"])),
        )
        for each in listeners
        for dialect, counted in each["dialects"].items()
    )
    columns = ("Address", "Transport", "Dialect", *numbers)
    return Table("listeners", "Listeners", columns, numbers, rows, "No listener is bound yet.")


def _failed(counted: Mapping[str, Any]) -> int:
    """Requests that neither succeeded nor were shed or cancelled."""
    other = counted["codes"].get("OK", 0) + counted["shed"] + counted["cancelled"]
    return int(counted["requests"] - other)


def _models(models: Mapping[str, Any]) -> Table:
    rows = []
    for name, model in models.items():
        versions = model["versions"] or ({"version": "", "state": model["state"], "reason": model["reason"]},)
        rows += [_version(name, model, version) for version in versions]
    numbers = (
        "Requests",
        "Failed",
        "Waiting",
        "Mean ms",
        "50 % ms",
        "90 % ms",
        "99 % ms",
        "Batch",
        "Cache hits",
    )
    return Table(
        "models",
        "Models",
        ("Model", "Version", "Runs on", "State", *numbers, "Reason"),
        numbers,
        tuple(rows),
        "No model is configured.",
    )


def _version(name: str, model: Mapping[str, Any], version: Mapping[str, Any]) -> tuple[Cell, ...]:
    quantiles = version.get("latency_ms", {})
    return (
        _text(name),
        _text(version["version"]),
        _text(model["runs"]),
        _text(version["state"]),
        _number(version.get("requests")),
        _fault(sum(version.get("failures", {}).values())),
        _number(version.get("waiting")),
        _number(version.get("latency_mean_ms")),
        *(_number(quantiles.get(at)) for at in ("0.5", "0.9", "0.99")),
        _number(version.get("batch_size_mean")),
        _number(version.get("cache_hits")),
        _text(version["reason"] or model["reason"]),
    )


def _upstreams(upstreams: Mapping[str, Any]) -> Table:
    numbers = ("Outstanding", "Requests", "Failures", "Ejections")
    rows = tuple(
        (
            _text(name),
            _text(server["url"]),
            _text(server["state"]),
            _text(server["breaker"]),
            _number(server["outstanding"]),
            _number(server["requests"]),
            _fault(server["failures"]),
            _fault(server["ejections"]),
            _text(server["last_failure"]),
        )
        for name, upstream in upstreams.items()
        for server in upstream["servers"]
    )
    columns = ("Upstream", "Server", "State", "Breaker", *numbers, "Last failure")
    return Table("upstreams", "Upstreams", columns, numbers, rows, "No upstream is configured.")


def _replicas(cluster: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            _text(name),
            _text(replica["state"]),
            _text(replica["replica"]),
            _text(replica["address"]),
            _text(str(replica["process"] or "")),
            _text(model["reason"]),
        )
        for name, model in cluster["models"].items()
        for replica in model["replicas"] or [_NO_REPLICA]
    )
    columns = ("Model", "State", "Replica", "Node", "Pid", "Reason")
    caption = f"Ray: {sum(node['alive'] for node in cluster['nodes'])} nodes"
    return Table("ray", caption, columns, (), rows, cluster["reason"] or "No model runs on Ray.")


_NO_REPLICA = {"state": "UNAVAILABLE", "replica": "", "address": "", "process": 0}


def _routes(routes: Iterable[Mapping[str, Any]]) -> Table:
    rows = tuple(
        (
            _text(str(each["route"])),
            _text(
                ", ".join(f"{name} {_words(value)}" for name, value in each["match"].items()) or "everything"
            ),
            _number(each["requests"]),
            _text(", ".join(_share(part, each["requests"]) for part in each["to"])),
            _text(each["fallback"]),
            _fault(each["fallbacks"]),
        )
        for each in routes
    )
    columns = ("Route", "Matches", "Requests", "To", "Fallback", "Fallbacks")
    return Table("routes", "Routes", columns, ("Requests", "Fallbacks"), rows, "No route is configured.")


def _share(part: Mapping[str, Any], all_requests: int) -> str:
    share = f" ({100 * part['requests'] / all_requests:.1f} %)" if all_requests else ""
    return f"{part['model']}: {part['requests']:,}{share}"


def _words(value: Any) -> str:
    """A condition as text: plain values as they are, mappings as names with values."""
    if isinstance(value, Mapping):
        return " and ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


def _mirrors(mirrors: Iterable[Mapping[str, Any]]) -> Table:
    counts = ("Percent", "Compared", "Equal", "Different", "Failed", "Dropped", "Waiting")
    numbers = (*counts, "Primary mean ms", "Mirror mean ms")
    rows = tuple(
        (
            _text(each["name"]),
            _text(each["to"]),
            _number(each["percent"]),
            _number(each["compared"]),
            _number(each["equal"]),
            _fault(each["different"]),
            _fault(sum(failure["count"] for failure in each["failures"].values())),
            _number(sum(each["dropped"].values())),
            _number(each["held"]["requests"]),
            *(
                _number(each.get("latency_ms", {}).get(side, {}).get("mean"))
                for side in ("primary", "mirror")
            ),
            _text(_worst_output(each["outputs"])),
        )
        for each in mirrors
    )
    columns = ("Mirror", "To", *numbers, "Worst output")
    return Table("mirrors", "Mirrors", columns, numbers, rows, "No mirror is configured.")


def _processes(processes: Mapping[str, Any]) -> Table:
    numbers = ("Pid", "Restarts", "Answers in ms", "Silent for", "Connections")
    rows = tuple(
        (
            _text(name),
            _text("READY" if each["ready"] else "UNAVAILABLE"),
            _text(_span(each["uptime_secs"])),
            _text(_NOTHING if each["pid"] is None else str(each["pid"])),
            _fault(each["restarts"]),
            _number(each["answer_ms"]),
            _number(each.get("silent_secs")),
            _number(each.get("connections")),
        )
        for name, each in processes.items()
    )
    columns = ("Process", "State", "Up for", *numbers)
    return Table("processes", "Processes", columns, numbers, rows, "There is one process.")


def _worst_output(outputs: Mapping[str, Any]) -> str:
    differing = {name: output for name, output in outputs.items() if output["different"]}
    if not differing:
        return ""
    # infinity is null in JSON
    errors = {
        name: math.inf if (off := output["max_absolute"]) is None else off
        for name, output in differing.items()
    }
    name = max(errors, key=errors.__getitem__)
    return f"{name}: off by {errors[name]:.3g}"


def _text(text: str) -> Cell:
    return text, _TONES.get(text, "")


def _number(value: float | None) -> Cell:
    return (_NOTHING if value is None else f"{value:,}"), ""


def _fault(count: int) -> Cell:
    return f"{count:,}", "warn" if count else ""


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _span(seconds: float) -> str:
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {secs} s" if minutes else f"{secs} s"
