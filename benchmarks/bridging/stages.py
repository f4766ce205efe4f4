"""Where the microseconds of a bridged request go, in Markdown: ``python -m benchmarks.bridging.stages``.

A profiler in the daemon samples its CPU time under the load of ``benchmarks.bridging``. The innermost
function with a stage decides: codecs by direction and caller, transports by side. A system call counts for
the function that makes it; what the event loop does between two functions counts for the second one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import processes
from benchmarks.bridging.servers import Servers, bridge
from benchmarks.bridging.table import COUNTS, ROWS, Row
from benchmarks.bridging.traffic import Traffic

STAGES = (
    "read",
    "open",
    "route",
    "decode",
    "encode",
    "pool",
    "write",
    "wait",
    "read answer",
    "decode answer",
    "encode answer",
    "write answer",
)
"""In the order of a request; ``wait`` is the event loop's own part."""

_REQUESTS, _QUICK_REQUESTS = 40_000, 3_000
_CLIENT = re.compile(
    r"interlingua\.protocols\.transport\.\w+\.(\w*client\w*)|aiohttp\.(client|connector)|grpc\.aio"
)
_SERVER = re.compile(
    r"interlingua\.protocols\.transport\.(http|grpc|brpc|framed)\.|aiohttp\.web|http1\.answer"
)
_DIALECT = re.compile(r"interlingua\.protocols\.(oip|trtis|graphpipe|grps)\.")
_RECEIVES = re.compile(
    r"received|updated|receive|read|feed|get_buffer|on_head|on_body|on_message|answer|ended|_done"
)
_ANSWERS = re.compile(r"writer|answer|write|send|finish|flush", re.IGNORECASE)


def stage_of(stack: Sequence[str]) -> str:
    """The stage of a stack of ``module:function``, innermost first."""
    encodes = False
    dialect = spliced = False
    for frame in stack:
        if _DIALECT.match(frame):
            dialect = True
            encodes = encodes or "encode" in frame or "write" in frame
        elif dialect and frame.startswith(("interlingua.runtime.", "interlingua.translator.")):
            if frame.startswith("interlingua.runtime.upstream"):
                return "encode" if encodes else "decode answer"
            return "encode answer" if encodes else "decode"
        elif frame.startswith("interlingua.runtime.upstream.replies"):
            return "encode answer" if spliced else "decode answer"
        elif frame == "interlingua.protocols.splice:Splice.of":
            spliced = True
        elif spliced and frame.startswith("interlingua.runtime.upstream.forward"):
            return "encode"
        elif _CLIENT.match(frame):
            return "read answer" if _RECEIVES.search(frame.partition(":")[2]) else "write"
        elif _SERVER.search(frame):
            if _ANSWERS.search(frame):
                return "write answer"
            return "read" if _RECEIVES.search(frame.partition(":")[2]) else "open"
        elif frame.startswith("interlingua.runtime.upstream"):
            return "pool"
        elif frame.startswith(("interlingua.runtime.", "interlingua.translator.serving.dispatch")):
            return "route"
        elif frame.startswith("interlingua.translator.serving"):
            return "open"
    return "wait"


class Profiled:
    """A bridge with the profiler in it."""

    def __init__(self, folder: Path, config: dict[str, object], running: ExitStack) -> None:
        self._file = folder / "stacks"
        folder.mkdir()
        module = ("benchmarks.bridging.sampler", str(self._file))
        self.server = running.enter_context(processes.daemon(folder, config, module))

    def taken(self) -> Counter[str]:
        """The samples since the last time, by stage."""
        os.kill(self.server.pid, signal.SIGUSR2)
        while not self._file.exists():
            time.sleep(0.01)
        stacks = json.loads(self._file.read_text())
        self._file.unlink()
        found: Counter[str] = Counter()
        for count, stack in stacks:
            found[stage_of(stack)] += count
        return found


def measure(row: Row, servers: Servers, folder: Path, requests: int) -> tuple[float, dict[str, float], int]:
    """The CPU microseconds of a request, those of each stage, and the number of samples."""
    _, dialect, transport = row.server.split()
    upstream = servers["serving"]
    assert upstream is not None
    with ExitStack() as running:
        config = bridge(upstream.addresses[transport], dialect, transport)
        profiled = Profiled(folder, config, running)
        traffic = Traffic(folder)
        traffic.cost_us(profiled.server, row.request(), max(32, requests // 20))
        profiled.taken()
        us = traffic.cost_us(profiled.server, row.request(), requests)
        samples = profiled.taken()
    total = samples.total()
    return us, {stage: us * samples[stage] / max(total, 1) for stage in STAGES}, total


def main() -> int:
    """Print a row for each pair."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bridging.stages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests, fewer samples")
    parser.add_argument("--bytes", type=int, default=64, choices=(64, 64 << 10, 4 << 20), help="default: 64")
    parser.add_argument("--only", nargs="+", default=[], metavar="PAIR", help="pairs with one of these texts")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if row.server.startswith("bridge") and row.size == arguments.bytes]
    wanted = [
        row
        for row in rows
        if not arguments.only or any(each.lower() in row.name.lower() for each in arguments.only)
    ]
    sys.stdout.write(
        f"| {arguments.bytes} bytes | {' | '.join(STAGES)} | all |\n|{'---|' * (len(STAGES) + 2)}\n"
    )
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        servers = Servers(folder, running)
        for number, row in enumerate(wanted):
            requests = (_QUICK_REQUESTS if arguments.quick else _REQUESTS) * row.count // COUNTS[64]
            us, stages, _ = measure(row, servers, folder / f"stages{number}", max(requests, 32))
            cells = " | ".join(f"{stages[stage]:.0f}" for stage in STAGES)
            sys.stdout.write(f"| {row.name} | {cells} | {us:.0f} |\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
