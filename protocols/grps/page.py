"""The page of metrics: its lines, the series of each line, and the script that draws them.

A page of our own with the original's lines and addresses; it loads no other files.
"""

from __future__ import annotations

import html
import json

from interlingua.schemas import Metrics

LATENCIES = "*latency_cdf(ms)"
"""The line with the distribution of latencies."""

TRENDS = {
    "*qps": "requests_per_second",
    "*fail_rate(%)": "failed_percent",
    "*latency_avg(ms)": "latency_mean_ms",
    "*latency_max(ms)": "latency_max_ms",
    "*cpu_usage(%)": "cpu_percent",
    "*mem_usage(%)": "memory_percent",
}
"""The other lines by the original's names, as our trends."""

_LINES = (*list(TRENDS)[:4], LATENCIES, *list(TRENDS)[4:])

_SCRIPT_PATH = "/grps/v1/js/jquery_min"

SCRIPT = b"""\
"use strict";
const SERIES = "/grps/v1/monitor/series?name=";

function draw(figure, points) {
  const values = points.map((point) => point[1]);
  const top = Math.max(...values) || 1;
  const line = values.map((value, at) => `${(600 * at) / (values.length - 1)},${100 - (95 * value) / top}`);
  figure.innerHTML =
    `<svg viewBox="0 0 600 100" preserveAspectRatio="none"><polyline points="${line.join(" ")}"/></svg>`;
}

async function refresh(row) {
  const series = await (await fetch(SERIES + encodeURIComponent(row.dataset.name))).json();
  row.querySelector("output").textContent = series.data[series.data.length - 1][1];
  if (row.open) draw(row.querySelector("figure"), series.data);
}

const rows = [...document.querySelectorAll("details")];
const all = () => Promise.all(rows.map(refresh)).catch((error) => console.warn(error));
rows.forEach((row) => row.addEventListener("toggle", () => refresh(row)));
all();
setInterval(all, 1000);
"""

_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>grps metrics</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 42rem; }
summary { cursor: pointer; display: flex; justify-content: space-between; }
figure { margin: 0; }
svg { width: 100%; height: 8rem; background: #f4f4f4; }
polyline { fill: none; stroke: #06c; vector-effect: non-scaling-stroke; }
</style>
</head>
<body>
<h1>Metrics</h1>
"""


def page(metrics: Metrics) -> bytes:
    """The page with current values; an open line shows its series."""
    rows = []
    for name in _LINES:
        value = series(name, metrics)[-1][1]
        shown = html.escape(name, quote=True)
        rows.append(
            f'<details data-name="{shown}"><summary>{shown}<output>{value}</output></summary>'
            "<figure></figure></details>\n"
        )
    foot = f'<script src="{_SCRIPT_PATH}"></script>\n</body>\n</html>\n'
    return (_HEAD + "".join(rows) + foot).encode()


def series(name: str, metrics: Metrics) -> list[tuple[int, float]]:
    """The points of a line. Trends: 0 to 29 are days, to 53 hours, to 113 minutes, to 173 seconds. Latencies:
    milliseconds at 10, 20 … 90, 91 … 99 per cent, then at 99.9 and 99.99."""
    if name == LATENCIES:
        values = list(metrics.latencies_ms.values())
        percents = [*range(10, 100, 10), *range(91, 102)]
        return list(zip(percents, values, strict=True))
    return list(enumerate(metrics.trends[TRENDS[name]]))


def series_json(name: str, metrics: Metrics) -> bytes | None:
    """The same for the page's script; None for an unknown line."""
    if name not in _LINES:
        return None
    label = "cdf" if name == LATENCIES else "trend"
    return json.dumps({"label": label, "data": series(name, metrics)}).encode()
