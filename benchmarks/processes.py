"""Server processes: start them, read what CPU time they took, end them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
_START_SECS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A running server: its process group and its addresses by transport."""

    pid: int
    addresses: dict[str, str]

    def cpu_secs(self) -> float:
        """User and system time that the processes of the group have taken so far."""
        return sum(_cpu_secs(pid) for pid in _group(self.pid))


@contextmanager
def daemon(folder: Path, config: dict[str, Any]) -> Iterator[Server]:
    """The daemon itself, on a configuration whose listeners ask for free ports."""
    path, log = folder / "daemon.yaml", folder / "daemon.log"
    path.write_text(yaml.safe_dump(config))
    with (
        log.open("w") as stderr,
        _process("-m", "translator", "serve", "-c", str(path), stderr=stderr) as process,
    ):
        began = time.monotonic()
        while '"serving"' not in log.read_text():
            if process.poll() is not None or time.monotonic() - began > _START_SECS:
                raise RuntimeError(f"the daemon did not start: {log.read_text()}")
            time.sleep(0.05)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        addresses = {
            event["transport"]: event["address"] for event in events if event["event"] == "listening"
        }
        yield Server(process.pid, addresses)


@contextmanager
def floor(kind: str) -> Iterator[Server]:
    """The bare server of that kind."""
    with _process("-m", "benchmarks.floors", kind, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the bare {kind} server did not start")
        yield Server(process.pid, {"grpc" if kind == "grpc" else "http": address})


class Load:
    """The process that sends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def drive(self, order: dict[str, Any]) -> int:
        """Carry out ``order`` (see ``benchmarks.load``); how many requests were answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline()
        if not told:
            raise RuntimeError(f"the load generator failed on {order}")
        count: int = json.loads(told)["count"]
        return count


@contextmanager
def load() -> Iterator[Load]:
    """A load generator of its own process."""
    with _process("-m", "benchmarks.load", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Load(process)


@contextmanager
def _process(*arguments: str, **pipes: Any) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdout": subprocess.DEVNULL, **pipes}
    with subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, text=True, start_new_session=True, **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _group(leader: int) -> list[int]:
    """The processes that ``leader`` started and that stayed in its group, itself included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[2]) == leader:
            found.append(int(path.parent.name))
    return found


def _cpu_secs(pid: int) -> float:
    """From the scheduler in nanoseconds where the kernel tells, else in clock ticks."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except FileNotFoundError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
