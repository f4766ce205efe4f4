"""Triton and MLServer as processes beside the daemon, each from an environment of its own.

TRITON_ENVIRONMENT and MLSERVER_ENVIRONMENT name the environments that ``make peers-install`` makes; without
them there are no peers. Both listen on 127.0.0.1 alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import Server

_START_SECS = 180.0
_PORTS = ("http", "grpc", "metrics")
_NO_MESSAGE_IS_TOO_LONG = 64 << 20


def environment(variable: str) -> Path | None:
    """The environment that ``variable`` names, None where it names none."""
    named = os.environ.get(variable)
    return Path(named).absolute() if named else None


@contextmanager
def triton(place: Path, folder: Path, repository: Path) -> Iterator[Server]:
    """Triton, from the environment at ``place``, on ``repository``; it may write to ``folder``."""
    ports = dict(zip(_PORTS, free_ports(3), strict=True))
    with triton_process(place, folder, repository, ports) as process:
        yield _server(process, ports)


@contextmanager
def triton_process(
    place: Path, folder: Path, repository: Path, ports: Mapping[str, int], options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of Triton at ``ports`` for http, grpc and metrics; ``options`` extend its command line."""
    site = next(place.glob("lib/python3.*/site-packages"))
    server = site / "pytriton" / "tritonserver"
    version = site.parent.name.removeprefix("python")
    backends = folder / "backends"
    shutil.copytree(server / "backends" / "python", backends / "python")
    shutil.copy(server / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python")
    command = [
        str(server / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        f"--cache-directory={server / 'caches'}",
        *(f"--{name}-address=127.0.0.1" for name in ports),
        *(f"--{name}-port={port}" for name, port in ports.items()),
        "--allow-gpu-metrics=false",
        *options,
    ]
    search = {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
    }
    before = _regions()
    try:
        with running(command, folder, f"http://127.0.0.1:{ports['http']}/v2/health/ready", search) as process:
            yield process
    finally:
        for region in _regions() - before:
            region.unlink(missing_ok=True)


@contextmanager
def mlserver(place: Path, folder: Path, models: Path) -> Iterator[Server]:
    """MLServer, from the environment at ``place``, on ``models``; without workers, which with one model and
    two cores only add a hop."""
    ports = dict(zip(_PORTS, free_ports(3), strict=True))
    with mlserver_process(place, folder, models, ports) as process:
        yield _server(process, ports)


@contextmanager
def mlserver_process(
    place: Path, folder: Path, models: Path, ports: Mapping[str, int]
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of MLServer at ``ports`` for http, grpc and metrics; writes its settings to ``models``."""
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "parallel_workers": 0,
        "grpc_max_message_length": _NO_MESSAGE_IS_TOO_LONG,
        **{f"{name}_port": port for name, port in ports.items()},
    }
    (models / "settings.json").write_text(json.dumps(settings))
    command = [str(place / "bin" / "mlserver"), "start", str(models)]
    with running(command, folder, f"http://127.0.0.1:{ports['http']}/v2/health/ready") as process:
        yield process


def _server(process: subprocess.Popen[bytes], ports: Mapping[str, int]) -> Server:
    return Server(process.pid, {name: f"127.0.0.1:{ports[name]}" for name in ("http", "grpc")})


@contextmanager
def running(
    command: Sequence[str], folder: Path, ready: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` until the block ends, which begins when the URL ``ready`` answers 200. Its log is in
    ``folder``. Raises ``RuntimeError`` with the end of it if the process is not ready in time."""
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, ready, folder)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise RuntimeError(f"the server did not become ready:\n{end_of_log(folder)}")


def end_of_log(folder: Path) -> str:
    """The last lines of a server that ran in ``folder``."""
    return (folder / "log").read_text(errors="replace")[-4000:]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _regions() -> set[Path]:
    return set(Path("/dev/shm").glob("triton_python_backend_shm_region_*"))
