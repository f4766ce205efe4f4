"""What many models and many idle connections cost: start time, memory, and CPU while nothing happens.

``python -m benchmarks.scale [--models N] [--connections N]``: a daemon of one process, and one with two front
ends. Memory is proportional (a page that several processes share counts once), of all processes of the server
together. Each connection has sent one request before it is idle.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import processes, progress
from benchmarks.processes import Server

_SPEC = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
_IDENTITY = {
    "backend": "identity",
    "signature": {"inputs": _SPEC, "outputs": [{**_SPEC[0], "name": "y"}]},
}
_IDLE_SECS = 5.0
_BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]})


@dataclass(frozen=True)
class Row:
    """``model_secs`` and ``model_bytes`` are those of one more model, ``connection_bytes`` of one more
    connection."""

    workers: int
    start_secs: float
    model_secs: float
    model_bytes: float
    connect_secs: float
    connection_bytes: float
    idle_cpu: float


@contextmanager
def started(workers: int, models: int) -> Iterator[tuple[Server, float]]:
    """A daemon, and how long it took to serve."""
    config: dict[str, Any] = {
        "server": {"workers": workers, "log_format": "json", "drain_secs": 0.0},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "models": {f"identity_{number:04}": _IDENTITY for number in range(models)},
    }
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with processes.daemon(Path(folder), config) as server:
            yield server, time.monotonic() - began


def memory(server: Server) -> int:
    """Bytes of all processes together."""
    return sum(
        int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition("Pss:")[2].split()[0]) << 10
        for pid in server.cpu_secs_by_process()
    )


def connected(server: Server, count: int) -> list[http.client.HTTPConnection]:
    """Connections that have sent a request each."""
    found = [http.client.HTTPConnection(server.addresses["http"]) for _ in range(count)]
    for each in found:
        each.request("POST", "/v2/models/identity_0000/infer", _BODY)
        answer = each.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {answer.read()!r}")
        answer.read()
    return found


def measured(workers: int, models: int, connections: int) -> Row:
    """One row."""
    with started(workers, 1) as (server, start_secs):
        few = memory(server)
    with started(workers, models) as (server, many_secs):
        many = memory(server)
        # the first requests allocate what stays
        warm = connected(server, 64)
        before = memory(server)
        began = time.monotonic()
        opened = connected(server, connections)
        connect_secs = time.monotonic() - began
        after = memory(server)
        cpu = server.cpu_secs()
        time.sleep(_IDLE_SECS)
        idle = (server.cpu_secs() - cpu) / _IDLE_SECS
        for each in warm + opened:
            each.close()
    return Row(
        workers,
        start_secs,
        (many_secs - start_secs) / (models - 1),
        (many - few) / (models - 1),
        connect_secs,
        (after - before) / connections,
        idle,
    )


def table(rows: Iterable[Row], models: int, connections: int) -> str:
    """The rows in Markdown."""
    lines = [
        f"| front ends | start, s | with {models:,} models, s | KiB per model "
        f"| {connections:,} connections, s | KiB per connection | idle CPU, % |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = (
            str(row.workers),
            f"{row.start_secs:.1f}",
            f"{row.start_secs + row.model_secs * (models - 1):.1f}",
            f"{row.model_bytes / 1024:.1f}",
            f"{row.connect_secs:.1f}",
            f"{row.connection_bytes / 1024:.1f}",
            f"{100 * row.idle_cpu:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=5000)
    options = parser.parse_args()
    counts = progress.each((0, 2), lambda workers: f"{workers} front ends")
    rows = [measured(workers, options.models, options.connections) for workers in counts]
    print(table(rows, options.models, options.connections))
    return 0


if __name__ == "__main__":
    sys.exit(main())
