"""Server processes: start them, read what CPU time they took, end them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PYTHON: Sequence[str] = (sys.executable,)
"""What starts a process, in ``ROOT``."""

_START_SECS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A running server: its process group and its addresses by transport; ``admin`` is for operators.
    ``listening`` has the addresses of its listeners in the order of its configuration."""

    pid: int
    addresses: dict[str, str]
    listening: Sequence[str] = ()

    def cpu_secs(self) -> float:
        """User and system time that the processes of the group have taken so far."""
        return sum(_cpu_secs(pid) for pid in _group(self.pid))

    def cpu_secs_by_process(self) -> dict[int, float]:
        """The same of each process, by its number."""
        return {pid: _cpu_secs(pid) for pid in _group(self.pid)}

    def own_cpu_secs(self) -> float:
        """The same, of the server's own process alone."""
        return _cpu_secs(self.pid)

    def peak_mib(self) -> float:
        """The most memory that the processes of the group have held, each at its own time."""
        return sum(_mib(pid, "VmHWM") for pid in _group(self.pid))

    def resident_mib(self) -> float:
        """The memory of the server's own process, now."""
        return _mib(self.pid, "VmRSS")

    def own_peak_mib(self) -> float:
        """The most memory that the server's own process has held since :meth:`reset_peak`."""
        return _mib(self.pid, "VmHWM")

    def reset_peak(self) -> None:
        """Begin :meth:`own_peak_mib` again."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def move_others(self, cpus: Iterable[int]) -> None:
        """Have the processes that the server has started run on ``cpus`` alone."""
        for pid in _group(self.pid):
            if pid != self.pid:
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    os.sched_setaffinity(int(thread.name), cpus)


@contextmanager
def daemon(
    folder: Path, config: dict[str, Any], module: Sequence[str] = ("interlingua",)
) -> Iterator[Server]:
    """The daemon itself, on a configuration whose listeners ask for free ports; ``module`` starts it."""
    path, log = folder / "daemon.yaml", folder / "daemon.log"
    path.write_text(yaml.safe_dump(config))
    with (
        log.open("w") as stderr,
        _process("-m", *module, "serve", "-c", str(path), stderr=stderr) as process,
    ):
        began = time.monotonic()
        while '"serving"' not in log.read_text():
            if process.poll() is not None or time.monotonic() - began > _START_SECS:
                raise RuntimeError(f"the daemon did not start: {log.read_text()}")
            time.sleep(0.05)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        addresses = {
            event.get("transport", "admin"): event["address"]
            for event in events
            if event["event"].endswith("listening")
        }
        listening = [event["address"] for event in events if event["event"] == "listening"]
        yield Server(process.pid, addresses, listening)


@contextmanager
def floor(kind: str) -> Iterator[Server]:
    """The bare server of that kind."""
    with _process("-m", "benchmarks.floors", kind, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the bare {kind} server did not start")
        yield Server(process.pid, {kind if kind in ("grpc", "tcp") else "http": address})


@contextmanager
def peer(module: str, transport: str) -> Iterator[Server]:
    """The server of another project that ``module`` starts."""
    with _process("-m", module, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"{module} did not start")
        yield Server(process.pid, {transport: address})


@contextmanager
def relay(module: str, transport: str, upstream: str, *more: str) -> Iterator[Server]:
    """The server of that module of ``benchmarks.bridging``, in front of ``upstream``; ``more`` are further
    arguments of its command."""
    command = ("-m", f"benchmarks.bridging.{module}", upstream, *more)
    with _process(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"{module} did not start")
        yield Server(process.pid, {transport: address})


@contextmanager
def pinned(cpus: Iterable[int]) -> Iterator[None]:
    """Processes that are started meanwhile run on ``cpus`` alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Load:
    """The process that sends, one request at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def drive(self, order: dict[str, Any]) -> int:
        """Carry out ``order`` (see ``benchmarks.load``); how many requests were answered."""
        count: int = _exchange(self._process, json.dumps(order))["count"]
        return count


@contextmanager
def load() -> Iterator[Load]:
    """A load generator of its own process."""
    with _process("-m", "benchmarks.load", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Load(process)


class Clients:
    """The process of many clients (see ``benchmarks.clients``): first :meth:`connect`, then :meth:`go`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def connect(self, order: dict[str, Any]) -> tuple[str, bytes]:
        """Let them connect and ask once; the head and the body of an answer."""
        told = _exchange(self._process, json.dumps(order))
        return told["head"], base64.b64decode(told["body"])

    def go(self) -> dict[str, float]:
        """Carry out the order: ``count`` of requests, the ``secs`` that they took, and percentiles."""
        found: dict[str, float] = _exchange(self._process, "go")
        return found


@contextmanager
def clients(module: str = "benchmarks.clients") -> Iterator[Clients]:
    """Clients in a process of their own."""
    with _process("-m", module, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Clients(process)


@contextmanager
def replay(address: str) -> Iterator[str]:
    """The address of a server that answers as the one at ``address`` did (see ``benchmarks.replay``)."""
    with _process("-m", "benchmarks.replay", address, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


class Arrivals:
    """The process that sends at a rate (see ``benchmarks.arrivals``)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def drive(self, order: dict[str, Any]) -> list[float]:
        """Carry out ``order``; how many microseconds each answer took."""
        took: list[float] = _exchange(self._process, json.dumps(order))["us"]
        return took


@contextmanager
def arrivals() -> Iterator[Arrivals]:
    """A load generator of its own process."""
    with _process("-m", "benchmarks.arrivals", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Arrivals(process)


class Loop:
    """The process that runs a model with nothing around it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def cpu_per_row(self, batch_size: int, secs: float) -> float:
        """CPU seconds that a row takes in batches of that size."""
        told = self._run(batch_size, secs)
        return told["cpu_secs"] / told["rows"]

    def rows_per_sec(self, batch_size: int, secs: float) -> float:
        """How many rows it runs in batches of that size."""
        told = self._run(batch_size, secs)
        return told["rows"] / told["secs"]

    def _run(self, batch_size: int, secs: float) -> dict[str, float]:
        return _exchange(self._process, json.dumps({"batch_size": batch_size, "secs": secs}))


@contextmanager
def bare_loop(engine: str, device: str, file: Path, name: str, dims: Sequence[int]) -> Iterator[Loop]:
    """A bare loop on the model ``file`` with its input ``name`` (see ``benchmarks.bare_loop``)."""
    arguments = ("-m", "benchmarks.bare_loop", engine, device, str(file), name, ",".join(map(str, dims)))
    with _process(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Loop(process)


def _exchange(process: subprocess.Popen[str], line: str) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    told = process.stdout.readline()
    if not told:
        raise RuntimeError(f"a process that was measured with failed on {line}")
    found: dict[str, Any] = json.loads(told)
    return found


@contextmanager
def _process(*arguments: str, **pipes: Any) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdout": subprocess.DEVNULL, **pipes}
    with subprocess.Popen(
        [*PYTHON, *arguments], cwd=ROOT, text=True, start_new_session=True, **pipes
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


def _mib(pid: int, figure: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:  # it has ended meanwhile
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{figure}:")) / 1024
