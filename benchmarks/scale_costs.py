"""Measures what requests cost on this machine, for ``benchmarks.scale_model``."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks import processes
from benchmarks.cases import CASES
from benchmarks.scale_model import CLIENTS, Costs
from benchmarks.workers import Row, config
from interlingua.runtime.peers.rendezvous import Rendezvous
from interlingua.runtime.upstream.pool import Member


def measure(case_name: str, size: int, rounds: int, secs: float) -> Costs:
    """The costs of a case of ``benchmarks.cases`` with the identity model. One process, one and two front
    ends and a bridge to another daemon take turns."""
    case = next(each for each in CASES if (each.name, each.size) == (case_name, size))
    local, bridged = Row(case_name, case_name, size), Row(case_name, case_name, size, bridged=True)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        request = folder / "request"
        request.write_bytes(case.request()[0])

        def start(name: str, workers: int, row: Row, upstream: str = "") -> processes.Server:
            own = folder / name
            own.mkdir()
            found = config(workers, row, upstream)
            return running.enter_context(processes.daemon(own, {**found, "admin": {"listen": "127.0.0.1:0"}}))

        servers = {str(count): start(str(count), count, local) for count in (0, 1, 2)}
        servers["bridge"] = start("bridge", 0, bridged, servers["0"].addresses["grpc"])
        spent: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
        for _ in range(rounds):
            for name, server in servers.items():
                order = {
                    "transport": case.transport,
                    "address": server.addresses[case.transport],
                    "method": case.method,
                    "request": str(request),
                    "clients": CLIENTS * (2 if name == "2" else 1),
                    "secs": secs,
                }
                spent[name].append(_round(server, order, _roles(server) if name in ("1", "2") else {}))
    # what is predicted is not what it is predicted from
    costs, measured = ({name: _medians(found[first::2]) for name, found in spent.items()} for first in (0, 1))
    return Costs(
        f"{case_name}, {size} B",
        costs["0"]["busiest"],
        costs["1"]["front"],
        costs["1"]["runtime"],
        max(costs["bridge"]["busiest"] - costs["1"]["front"], 0.0),
        {str(peers): _owner_us(peers) for peers in (10, 10_000)},
        {
            "0": 1e6 / measured["0"]["busiest"],
            # front ends of a busy machine get unequal shares of it, and so of the requests: their mean
            **{
                str(count): 1e6 / max(measured[str(count)]["front"] / count, measured[str(count)]["runtime"])
                for count in (1, 2)
            },
        },
    )


def _owner_us(peers: int) -> float:
    """Of the choice of an owner among ``peers``."""
    found = Rendezvous(
        [Member(None, f"peers:8009 (10.0.{each // 256}.{each % 256})") for each in range(peers)]
    )
    sequences = 2000
    began = time.process_time()
    for identity in range(sequences):
        found.owner(identity)
    return (time.process_time() - began) / sequences * 1e6


def _medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {role: statistics.median(each[role] for each in found) for role in found[0]}


def _roles(server: processes.Server) -> dict[int, str]:
    """The names of its processes."""
    with urlopen(f"http://{server.addresses['admin']}/processes") as page:
        return {each["pid"]: name for name, each in json.load(page).items()}


def _round(server: processes.Server, order: dict[str, Any], roles: dict[int, str]) -> dict[str, float]:
    """CPU µs per request: of the ``busiest`` process, the ``front`` ends together, and the ``runtime``."""
    with processes.clients() as clients:
        clients.connect(order)
        before = server.cpu_secs_by_process()
        done = clients.go()
        after = server.cpu_secs_by_process()
    us = {pid: (after[pid] - before.get(pid, 0.0)) / done["count"] * 1e6 for pid in after}
    found = {"busiest": max(us.values()), "front": 0.0, "runtime": 0.0}
    for pid, each in us.items():
        role = roles.get(pid, "")
        if role.startswith("front"):
            found["front"] += each
        elif role == "runtime":
            found["runtime"] += each
    return found
