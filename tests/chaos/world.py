"""The daemon, the server it calls, the proxies between them, and the callers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.callers import NEW, PAIRS, PAUSE_SECS, Caller
from tests.chaos.proxy import Proxy

ROOT = Path(__file__).parents[2]
TRANSPORTS = ("http", "grpc", "brpc", "tcp")
SIGNATURE = {side: [{"name": "INPUT0", "datatype": "FP32", "shape": [-1]}] for side in ("inputs", "outputs")}
IDENTITY = {"backend": "identity", "signature": SIGNATURE}
POLL_SECS = 0.1
REQUEST_TIMEOUT_SECS = 4.0

PYTHON_MODEL = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        given = [pb.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("OUTPUT0", each)]) for each in given]
"""
PYTHON_CONFIG = """
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""

DISK_BYTES = 32 << 20
_START_SECS, _STOP_SECS = 120.0, 60.0


@dataclass
class Process:
    """An ``interlingua serve``; its log is a file. ``addresses`` are those of its listeners, in order."""

    folder: Path
    config: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)
    popen: subprocess.Popen[bytes] = field(init=False)

    @property
    def path(self) -> Path:
        """The configuration file."""
        return self.folder / "config.yaml"

    @property
    def log(self) -> Path:
        """The log file."""
        return self.folder / "disk" / "log.jsonl"

    @property
    def pid(self) -> int:
        return self.popen.pid

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(yaml.safe_dump(self.config))
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "interlingua", "serve", "-c", str(self.path)],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stderr=log,
                stdout=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + _START_SECS
        lines: list[dict[str, Any]] = []
        while "serving" not in [line["event"] for line in lines]:
            if self.popen.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the daemon did not start: {lines}")
            await asyncio.sleep(0.05)
            lines = self.lines(begin)
        self.addresses = [line["address"] for line in lines if line["event"] == "listening"]

    def lines(self, begin: int = 0) -> list[dict[str, Any]]:
        """The log from the byte ``begin`` on."""
        return _lines(self.log, begin)

    async def stop(self) -> None:
        """Ask it to stop; end it if it does not."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.send_signal(signal.SIGTERM)
        end = time.monotonic() + _STOP_SECS
        while self.popen.poll() is None and time.monotonic() < end:
            await asyncio.sleep(0.05)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.popen.kill()
        self.popen.wait()


class World:
    """Everything that runs. ``clock``: the file ``clock_offset`` moves the clock of the daemon, which has ``front_ends``.
    Callers wait ``pause_secs`` between two requests. Faults keep here what they need to end."""

    def __init__(
        self, folder: Path, clock: bool = False, front_ends: int = 0, pause_secs: float = PAUSE_SECS
    ) -> None:
        self.folder = folder
        self.front_ends = front_ends
        self.clock_offset = folder / "offset" if clock else None
        self.kept: dict[Path, bytes] = {}
        self.held: list[socket.socket] = []
        self.large: dict[asyncio.Task[None], Caller] = {}
        self.proxies: dict[str, Proxy] = {}
        self.callers: list[Caller] = []
        self._pause_secs = pause_secs
        self._tasks: list[asyncio.Task[None]] = []
        self.disk_is_small = False
        self._environment = {} if self.clock_offset is None else clock_environment(folder, self.clock_offset)
        config = {
            "server": {"log_format": "json", "drain_secs": 0.0},
            "listeners": _listeners("X"),
            "models": {"X": IDENTITY},
        }
        self.upstream, self.successor = (Process(folder / f"upstream-{each}", config) for each in "ab")
        self.daemon: Process
        self._processes: list[Process] = []

    async def start(self) -> None:
        """Start the processes, and the callers one after another."""
        for transport in TRANSPORTS:
            self.proxies[transport] = proxy = Proxy()
            await proxy.start()
        _write_models(self.models)
        self.daemon = Process(self.folder / "daemon", self._config(), self._environment)
        self.disk.mkdir(parents=True)
        self.disk_is_small = _mounted(self.disk)
        self._processes += [self.upstream, self.daemon]
        await asyncio.gather(self.upstream.start(), self.daemon.start())
        self.connect(self.upstream)
        places = dict(zip(TRANSPORTS, self.daemon.addresses, strict=False))
        tcp = dict(zip(_TCP_MODELS, self.daemon.addresses[len(TRANSPORTS) - 1 :], strict=True))
        for dialect, transport in PAIRS:
            for target in ("local", "python", "polled", "remote"):
                model = f"remote-{dialect}-{transport}" if target == "remote" else target
                address = tcp[model] if transport == "tcp" else places[transport]
                self.callers.append(Caller(dialect, transport, target, model, address))
        self.callers += [
            Caller("oip", transport, NEW, "local", places[transport]) for transport in ("http", "grpc")
        ]
        for caller in self.callers:
            caller.pause_secs = self._pause_secs
            self.run(caller)
            await asyncio.sleep(0.002)

    async def prepare(self) -> None:
        """Start the successor of the upstream."""
        self._processes.append(self.successor)
        await self.successor.start()

    def connect(self, upstream: Process) -> None:
        """Have the proxies pass new connections to ``upstream``."""
        self.upstream = upstream
        for proxy, address in zip(self.proxies.values(), upstream.addresses, strict=True):
            proxy.target = int(address.rpartition(":")[2])

    def run(self, caller: Caller) -> asyncio.Task[None]:
        """Run one more caller, until the end or until its task is cancelled."""
        task = asyncio.create_task(caller.run())
        self._tasks.append(task)
        return task

    async def stop(self) -> None:
        """End everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for proxy in self.proxies.values():
            await proxy.stop()
        for process in self._processes:
            await process.stop()
        if self.disk_is_small:
            shutil.copy(self.daemon.log, self.folder / "log.jsonl")
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)

    def errors(self) -> list[dict[str, Any]]:
        """The errors in the log of the daemon, which has ended, and its exit code unless that is 0. Requests that
        fail, which the access log records, are callers' to judge."""
        found = _lines(self.folder / "log.jsonl" if self.disk_is_small else self.daemon.log)
        if self.daemon.popen.returncode:
            found.append({"event": f"exit code {self.daemon.popen.returncode}", "level": "error"})
        # a full disk cuts a line in two
        cut = [line for line in found if line["level"] == "unparsed" and line["event"].startswith('{"time"')]
        return [
            line
            for line in found
            if line["level"] in ("error", "unparsed") and line["event"] != "request" and line not in cut
        ]

    @property
    def models(self) -> Path:
        """The repository of the daemon."""
        return self.folder / "models"

    @property
    def disk(self) -> Path:
        """The folder of the log and the recording of the daemon: a small file system of its own, where this process may
        mount one."""
        return self.folder / "daemon" / "disk"

    @property
    def tap(self) -> Path:
        """The recording of the daemon."""
        return self.disk / "tap"

    def workers(self) -> list[int]:
        """The processes of Python models."""
        return [pid for pid in _children(self.daemon.pid) if b"python_worker" in _command(pid)]

    def processes(self) -> dict[int, str]:
        """All processes of the daemon, with their names."""
        return {pid: _name(pid) for pid in (self.daemon.pid, *_children(self.daemon.pid))}

    def _config(self) -> dict[str, Any]:
        upstreams = {
            f"{dialect}-{transport}": {
                "dialect": dialect,
                "transport": transport,
                "urls": [f"127.0.0.1:{self.proxies[transport].port}"],
                "request_timeout_secs": REQUEST_TIMEOUT_SECS,
                "probe_interval_secs": 0.3,
            }
            for dialect, transport in PAIRS
        }
        remote: dict[str, Any] = {
            f"remote-{name}": {
                "upstream": name,
                "remote_model": "" if options["transport"] == "tcp" else "X",
                "signature": SIGNATURE,
            }
            for name, options in upstreams.items()
        }
        return {
            "server": {
                "log_format": "json",
                "log_level": "debug",
                "drain_secs": 0.0,
                "workers": self.front_ends,
                "repository_poll_secs": POLL_SECS,
            },
            "listeners": _listeners(*_TCP_MODELS),
            "models": {"local": IDENTITY, **remote},
            "model_repository": [{"path": str(self.models), "control": "poll"}],
            "upstreams": upstreams,
            "tap": {"path": str(self.tap), "max_bytes": DISK_BYTES // 8, "max_files": 2},
        }


_TCP_MODELS = ("local", "python", "polled", "remote-graphpipe-tcp")


def _listeners(*models: str) -> list[dict[str, Any]]:
    """One of each transport; of tcp, where no request names a model, one for each of ``models``."""
    found = [listener(transport) for transport in TRANSPORTS if transport != "tcp"]
    return found + [listener("tcp", default_model=model) for model in models]


def listener(transport: str, listen: str = "127.0.0.1:0", **options: Any) -> dict[str, Any]:
    """A listener of every dialect that ``transport`` carries."""
    dialects = [dialect for dialect, over in PAIRS if over == transport]
    return {"listen": listen, "transport": transport, "dialects": dialects, **options}


def _write_models(folder: Path) -> None:
    (folder / "python" / "1").mkdir(parents=True)
    (folder / "python" / "1" / "model.py").write_text(PYTHON_MODEL)
    (folder / "python" / "config.pbtxt").write_text(PYTHON_CONFIG)
    shutil.copytree(ROOT / "examples" / "models" / "identity_fp32", folder / "polled")
    config = folder / "polled" / "config.pbtxt"
    config.write_text(config.read_text().replace("identity_fp32", "polled"))


def _mounted(folder: Path) -> bool:
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs"]
    return subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False).returncode == 0


def _lines(log: Path, begin: int = 0) -> list[dict[str, Any]]:
    """The lines of a log; one that is not JSON has an ``event`` alone."""
    found = []
    for line in log.read_bytes()[begin:].splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"event": line.decode(errors="replace"), "level": "unparsed"})
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                found += [int(child), *_children(int(child))]
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def clock_library(folder: Path) -> Path | None:
    """``clock.c``, compiled; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "clock.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", library, Path(__file__).with_name("clock.c")], check=True
    )
    return library


def clock_environment(folder: Path, offset: Path) -> dict[str, str]:
    """The environment of a process whose clock the file ``offset`` moves."""
    library = clock_library(folder)
    assert library is not None, "there is a C compiler"
    offset.write_bytes(bytes(8))
    return {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}
