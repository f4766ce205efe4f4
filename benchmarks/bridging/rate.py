"""Digits on Triton, through the daemon from GraphPipe over HTTP, and directly by tritonclient.

The daemon has one processor, Triton and the clients the other, with and without the daemon. Rates are
those of 64 clients. Added latency is that of one client: the difference of percentiles between two adjacent
turns of the same cheap generator, one through the daemon and one directly over gRPC; medians of them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import peers, processes
from benchmarks.batched_models import repository, served
from benchmarks.bridging.figures import Figure
from benchmarks.bridging.requests import ModelUse, Request, request
from benchmarks.bridging.servers import DIGITS
from benchmarks.bridging.traffic import check
from benchmarks.cases import CONFIG
from benchmarks.processes import Clients

NAME = "rate, GraphPipe HTTP -> Triton gRPC, digits"
CLIENTS = 64
_RATE, _P50_US, _P99_US = 0.9, 250.0, 1000.0
_TURNS, _SECS = 7, 2.0
_QUICK_TURNS, _QUICK_SECS = 2, 0.5


def bridge(triton: str, model: str) -> dict[str, Any]:
    """The daemon in front of Triton."""
    return {
        "server": CONFIG["server"],
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "models": {model: {"upstream": "triton"}},
        "upstreams": {"triton": {"dialect": "oip", "transport": "grpc", "urls": [triton]}},
    }


def measure(folder: Path, quick: bool) -> Iterator[Figure]:
    """Nothing where Triton is not installed or only one processor is there."""
    place, cpus = peers.environment("TRITON_ENVIRONMENT"), sorted(os.sched_getaffinity(0))
    if place is None or len(cpus) < 2:
        return
    digits = next(model for model in served(folder) if model.name == "digits")
    use = ModelUse(digits.variant(0), "image", ("label", "probabilities"), DIGITS)
    own = folder / "rate"
    own.mkdir()
    with ExitStack() as running:
        with processes.pinned(cpus[1:2]):
            models = repository(own / "models", digits, "python")
            triton = running.enter_context(peers.triton(place, own, models)).addresses["grpc"]
            cheap = running.enter_context(processes.clients())
            library = running.enter_context(processes.clients("benchmarks.bridging.tritonclient_load"))
        with processes.pinned(cpus[:1]):
            server = running.enter_context(processes.daemon(own, bridge(triton, use.name)))
        graphpipe, oip = request("graphpipe", "http", 256, use), request("oip", "grpc", 256, use)
        through = _Side(cheap, server.addresses["http"], graphpipe, own / "graphpipe")
        direct = _Side(cheap, triton, oip, own / "oip")
        by_library = _Side(library, triton, oip, own / "oip")
        turns, secs = (_QUICK_TURNS, _QUICK_SECS) if quick else (_TURNS, _SECS)
        yield from _rates(through, by_library, direct, turns, secs)
        yield from _latencies(through, direct, turns, secs)


class _Side:
    """One way to Triton."""

    def __init__(self, clients: Clients, address: str, sent: Request, file: Path) -> None:
        check(address, sent)
        file.write_bytes(sent.sent())
        self._clients = clients
        self._order = {
            "transport": sent.transport,
            "address": address,
            "method": sent.path,
            "request": str(file),
        }

    def turn(self, clients: int, secs: float) -> dict[str, float]:
        """What ``clients`` measure."""
        self._clients.connect({**self._order, "clients": clients, "secs": secs})
        return self._clients.go()


def _rates(through: _Side, library: _Side, direct: _Side, turns: int, secs: float) -> Iterator[Figure]:
    sides = (through, library, direct)
    told: list[list[float]] = []
    for _ in range(turns):
        found = [side.turn(CLIENTS, secs) for side in sides]
        told.append([each["count"] / each["secs"] for each in found])
    bridged, by_library, cheap = (statistics.median(column) for column in zip(*told, strict=True))
    ratio = statistics.median(one / other for one, other, _ in told)
    note = (
        f"{bridged:.0f} requests/s, tritonclient {by_library:.0f}, the cheap generator directly {cheap:.0f}"
    )
    yield Figure(NAME, round(ratio, 2), "of tritonclient's", _RATE, note, at_least=True)


def _latencies(through: _Side, direct: _Side, turns: int, secs: float) -> Iterator[Figure]:
    # short turns, so that both of a pair meet the same neighbours
    pairs = [(through.turn(1, secs / 4), direct.turn(1, secs / 4)) for _ in range(4 * turns)]
    for name, target in (("p50", _P50_US), ("p99", _P99_US)):
        key = f"{name}_ms"
        added = statistics.median(one[key] - other[key] for one, other in pairs) * 1e3
        one, other = (
            statistics.median(each[key] for each in side) * 1e3 for side in zip(*pairs, strict=True)
        )
        note = f"{one:.0f} us through the daemon, {other:.0f} directly"
        yield Figure(f"{NAME}, added {name}", round(added), "us", target, note)
