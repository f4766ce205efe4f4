"""A real Triton Inference Server, from the wheel that carries its binary, in an environment of its own.

``make peers`` creates that environment; TRITON_ENVIRONMENT names it. Only Triton's Python backend is
in the wheel, so the models are those of ``tests/golden/oip/model_repository``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "golden" / "oip" / "model_repository"
START_SECS = 90


@dataclass(frozen=True)
class Triton:
    http: str
    grpc: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wanted_models() -> list[str]:
    return ["simple", "simple_string", "cls", *sorted(path.name for path in MODELS.glob("identity_*"))]


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    environment = Path(os.environ.get("TRITON_ENVIRONMENT", ROOT / ".venv-triton")).absolute()
    site = next(environment.glob("lib/python3.*/site-packages"), None)
    assert site is not None, f"no environment with nvidia-pytriton at {environment}: run `make peers`"
    server = site / "pytriton" / "tritonserver"
    version = site.parent.name.removeprefix("python")
    backends = tmp_path_factory.mktemp("backends")
    shutil.copytree(server / "backends" / "python", backends / "python")
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, backends / "python")
    http, grpc, metrics = free_port(), free_port(), free_port()
    log = tmp_path_factory.mktemp("triton") / "log"
    command = [
        str(server / "bin" / "tritonserver"),
        f"--model-repository={MODELS}",
        f"--backend-directory={backends}",
        f"--cache-directory={server / 'caches'}",
        *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")),
        f"--http-port={http}",
        f"--grpc-port={grpc}",
        f"--metrics-port={metrics}",
        "--allow-gpu-metrics=false",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in wanted_models()),
    ]
    search = {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
    }
    before = shared_regions()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **search}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        wait_until_ready(process, f"http://127.0.0.1:{http}/v2/health/ready", log)
        yield Triton(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for region in shared_regions() - before:
            region.unlink(missing_ok=True)


def shared_regions() -> set[Path]:
    return set(Path("/dev/shm").glob("triton_python_backend_shm_region_*"))


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    pytest.fail(f"Triton did not become ready:\n{log.read_text(errors='replace')[-4000:]}")
