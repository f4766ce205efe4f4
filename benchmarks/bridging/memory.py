"""Memory of the bridge above idle, with 32 requests of 16 MiB in flight: the peak of its resident set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import processes
from benchmarks.bridging.figures import Figure
from benchmarks.bridging.requests import request
from benchmarks.bridging.servers import Servers, bridge
from benchmarks.bridging.traffic import IN_FLIGHT, Traffic, check

NAME = "memory"
_SIZE = 16 << 20
_DECODED_RATIO, _PASSED_MIB = 1.3, 64.0
_RESET_PEAK = "5"
"""What resets VmHWM (proc(5), clear_refs)."""

_PAIRS = (
    ("TRTIS HTTP -> OIP gRPC", "trtis", "oip", "grpc"),
    ("GraphPipe HTTP -> OIP HTTP", "graphpipe", "oip", "http"),
    ("OIP HTTP -> OIP HTTP, passed", "oip", "oip", "http"),
)


def measure(servers: Servers, folder: Path, quick: bool) -> Iterator[Figure]:
    """A figure for each pair, from a daemon of its own; a quick one has requests of 1 MiB."""
    size = _SIZE >> 4 if quick else _SIZE
    upstream = servers["serving"]
    assert upstream is not None
    for number, (pair, caller, dialect, transport) in enumerate(_PAIRS):
        own = folder / f"memory{number}"
        own.mkdir()
        config = bridge(upstream.addresses[transport], dialect, transport)
        with ExitStack() as running:
            server = running.enter_context(processes.daemon(own, config))
            check(server.addresses["http"], request(caller, "http", 64))
            Path(f"/proc/{server.pid}/clear_refs").write_text(_RESET_PEAK)
            idle = _kib(server.pid, "VmRSS")
            Traffic(own).cost_us(server, request(caller, "http", size), 2 * IN_FLIGHT)
            above = (_kib(server.pid, "VmHWM") - idle) / 1024
        name = f"{NAME}, {pair}, {IN_FLIGHT} x {size >> 20} MiB above idle"
        in_flight = 2 * IN_FLIGHT * size / (1 << 20)
        if "passed" in pair:
            yield Figure(name, round(above), "MiB", _PASSED_MIB)
        else:
            note = f"{above:.0f} MiB, requests and answers have {in_flight:.0f}"
            yield Figure(name, round(above / in_flight, 2), "of the bytes in flight", _DECODED_RATIO, note)


def _kib(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1])
