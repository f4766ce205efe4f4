"""Measures one attack on one server: the honest clients alone, then beside the attack."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.hostile import probe, servers
from benchmarks.hostile.attack import Attack
from benchmarks.hostile.probe import Latency, Probe
from benchmarks.processes import ROOT, Server

MAX_RATIO = 2.0
"""How much larger the median of the honest client may be beside the attack."""

MAX_WORST_MS = 250.0

_SETTLE_SECS = 0.3
_PATIENCE_SECS = 60.0
"""How much longer than planned an attack may take."""


@dataclass(frozen=True)
class Length:
    """Seconds of the honest clients alone, of the attack, and after it, since it may leave work behind."""

    alone: float
    attack: float
    after: float


LONG = Length(1.5, 4.0, 1.0)
QUICK = Length(0.5, 1.0, 0.5)


@dataclass(frozen=True)
class Row:
    """One attack on one server. ``health`` is None where the server has no such address; ``peak_mib`` is the
    most memory that its processes held, ``grown_mib`` how much that is above the memory before. ``lost``
    counts requests of honest clients without an answer."""

    attack: str
    server: str
    alone: Latency
    honest: Latency
    health: Latency | None
    peak_mib: float
    grown_mib: float
    bound_mib: int
    lost: int

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return round(self.honest.median_ms / self.alone.median_ms, 2)

    @property
    def misses(self) -> tuple[str, ...]:
        """What is not as it should be."""
        worst = max(self.honest.worst_ms, 0.0 if self.health is None else self.health.worst_ms)
        found = {
            "median": self.ratio > MAX_RATIO,
            "worst": worst > MAX_WORST_MS,
            "memory": self.grown_mib > self.bound_mib,
            "lost": self.lost > 0,
        }
        return tuple(name for name, missed in found.items() if missed)

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "ratio": self.ratio, "misses": self.misses}


def measure(attack: Attack, name: str, length: Length) -> Row:
    """Attack a fresh server of that name."""
    with tempfile.TemporaryDirectory() as folder, servers.started(name, Path(folder)) as server:
        probes = _probes(attack, name, server)
        time.sleep(_SETTLE_SECS)
        for each in probes:
            each.take()
        time.sleep(length.alone)
        alone = [each.take() for each in probes]
        before = server.peak_mib()
        lost = _carry_out(attack, server, length.attack)
        time.sleep(length.after)
        beside = [each.stop() for each in probes]
        peak = server.peak_mib()
    if not math.isfinite(alone[0].median_ms):
        raise RuntimeError(f"{name} answers no request")
    return Row(
        attack.name,
        name,
        alone[0],
        beside[0],
        beside[1] if len(beside) > 1 else None,
        round(peak),
        round(peak - before),
        attack.memory_mib,
        lost + sum(each.lost for each in beside),
    )


def _probes(attack: Attack, name: str, server: Server) -> list[Probe]:
    if name == servers.NGHTTPD:
        return [probe.page(server.addresses["grpc"])]
    transport = "http" if attack.transport == "brpc" else attack.transport
    return [
        probe.inference(transport, server.addresses[transport]),
        probe.health(server.addresses["admin"]),
    ]


def _carry_out(attack: Attack, server: Server, secs: float) -> int:
    """Run the attack in a process of its own; how many requests it lost."""
    order = {
        "name": attack.name,
        "address": server.addresses[attack.transport],
        "addresses": server.addresses,
        "secs": secs,
    }
    command = [sys.executable, "-m", "benchmarks.hostile.attacker"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=f"{json.dumps(order)}\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=secs + _PATIENCE_SECS,
    )
    lost: int = json.loads(done.stdout)["lost"]
    return lost
