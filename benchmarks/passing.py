"""The cost of gRPC messages of OIP that pass through, compared with decoding them.

``python -m benchmarks.passing``: two daemons forward everything to a third. One lets messages pass through;
the other decodes them, because it has a route with a condition on parameters. CPU microseconds of the daemon
in the middle per request, medians of alternating rounds, on each engine of its listener.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.cases import CASES, CONFIG, MODEL, OIP_METHOD
from benchmarks.processes import Load, Server

TARGET = 0.9
_ROUNDS, _QUICK_ROUNDS, _SECS = 9, 3, 1.0
_SIZES = (64, 4 << 20)


def between(upstream: str, engine: str, decodes: bool) -> dict[str, Any]:
    """The configuration of a daemon in front of ``upstream``, which ``decodes`` messages."""
    route = {"match": {"model": MODEL, "parameters": {"absent": "x"}}, "to": MODEL}
    return {
        "server": CONFIG["server"],
        "listeners": [{"listen": "127.0.0.1:0", "transport": "grpc", "engine": engine, "dialects": ["oip"]}],
        "models": {MODEL: {"upstream": "there"}},
        "upstreams": {"there": {"dialect": "oip", "transport": "grpc", "urls": [upstream]}},
        **({"routes": [route]} if decodes else {}),
    }


def cost_us(server: Server, load: Load, order: dict[str, Any]) -> float:
    """CPU microseconds of a request in one round."""
    before = server.cpu_secs()
    done = load.drive({**order, "address": server.addresses["grpc"]})
    return (server.cpu_secs() - before) / done * 1e6


def main() -> int:
    """Print a line for each engine and size; 1 where one misses the target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.passing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = _QUICK_ROUNDS if parser.parse_args().quick else _ROUNDS
    missed = False
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        load = running.enter_context(processes.load())

        def daemon(name: str, config: dict[str, Any]) -> Server:
            own = folder / name
            own.mkdir()
            return running.enter_context(processes.daemon(own, config))

        there = daemon("there", CONFIG).addresses["grpc"]
        for engine in ("native", "library"):
            passing = daemon(f"{engine} passing", between(there, engine, False))
            reading = daemon(f"{engine} reading", between(there, engine, True))
            for case in CASES:
                if case.method != OIP_METHOD or case.size not in _SIZES:
                    continue
                files = {"request": folder / "request", "expected": folder / "expected"}
                for path, data in zip(files.values(), case.request(), strict=True):
                    path.write_bytes(data)
                order = {
                    "transport": "grpc",
                    "method": OIP_METHOD,
                    "count": 1_000_000,
                    "secs": _SECS,
                    **{name: str(path) for name, path in files.items()},
                }
                pairs = [
                    [cost_us(server, load, order) for server in (passing, reading)] for _ in range(rounds)
                ]
                unread, read = (statistics.median(column) for column in zip(*pairs, strict=True))
                ratio = statistics.median(one / other for one, other in pairs)
                missed = missed or ratio > TARGET
                print(
                    f"engine {engine:8} {case.size:9,} bytes: {unread:8.1f} us unread, {read:8.1f} us read, "
                    f"ratio {ratio:.2f} (target <= {TARGET})"
                )
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
