"""Servers of other projects, each in a process and, where it needs one, an environment of its own.

``make peers`` makes the environments; TRITON_ENVIRONMENT and MLSERVER_ENVIRONMENT name them. KServe is
among the test dependencies: its process alone must be another, since its messages clash with those of
tritonclient. All listen on 127.0.0.1 alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.golden_repository import golden_repository
from tests.conformance.oip_client import Server
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
START_SECS = 120

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "BF16", "FP32", "FP64", "BYTES",
)  # fmt: skip


class EndedError(AssertionError):
    """A server ended by itself."""


IDENTITIES = tuple(f"identity_{name.lower()}" for name in DATATYPES)


@contextmanager
def triton(
    folder: Path, models: Sequence[str], repository: Path | None = None, options: Sequence[str] = ()
) -> Iterator[Server]:
    """Triton from the wheel that has its binary, with ``models`` of ``repository`` loaded, of the golden one
    where that is None, and ``options`` of its command line."""
    environment = Path(os.environ.get("TRITON_ENVIRONMENT", ROOT / ".venv-triton")).absolute()
    site = next(environment.glob("lib/python3.*/site-packages"), None)
    assert site is not None, f"no environment with nvidia-pytriton at {environment}: run `make peers`"
    server = site / "pytriton" / "tritonserver"
    version = site.parent.name.removeprefix("python")
    backends = folder / "backends"
    shutil.copytree(server / "backends" / "python", backends / "python")
    shutil.copy(server / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python")
    http, grpc, metrics = free_port(), free_port(), free_port()
    command = [
        str(server / "bin" / "tritonserver"),
        f"--model-repository={repository or golden_repository(folder / 'models')}",
        f"--backend-directory={backends}",
        f"--cache-directory={server / 'caches'}",
        *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")),
        f"--http-port={http}",
        f"--grpc-port={grpc}",
        f"--metrics-port={metrics}",
        "--allow-gpu-metrics=false",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        *options,
    ]
    search = {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
    }
    before = _regions_of_triton()
    try:
        with _process(command, folder, f"http://127.0.0.1:{http}/v2/health/ready", search):
            yield Server(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", metrics=f"127.0.0.1:{metrics}")
    finally:
        for region in _regions_of_triton() - before:
            region.unlink(missing_ok=True)


def _regions_of_triton() -> set[Path]:
    return set(Path("/dev/shm").glob("triton_python_backend_shm_region_*"))


@contextmanager
def mlserver(folder: Path) -> Iterator[Server]:
    """MLServer with the models of ``mlserver_models``."""
    environment = Path(os.environ.get("MLSERVER_ENVIRONMENT", ROOT / ".venv-mlserver")).absolute()
    command = environment / "bin" / "mlserver"
    assert command.exists(), f"no environment with mlserver at {environment}: run `make peers`"
    http, grpc, metrics = free_port(), free_port(), free_port()
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
        "grpc_max_message_length": 64 << 20,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    for name, (kind, sides) in _models_of_mlserver().items():
        place = folder / name
        place.mkdir()
        shutil.copy(Path(__file__).parent / "mlserver_models.py", place)
        described = {"name": name, "implementation": f"mlserver_models.{kind}", "platform": "python", **sides}
        (place / "model-settings.json").write_text(
            json.dumps({**described, "parameters": {"version": "1", "uri": "."}})
        )
    ready = f"http://127.0.0.1:{http}/v2/health/ready"
    with _process([str(command), "start", str(folder)], folder, ready):
        yield Server(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", binary=False, ends_streams=False)


def _reals() -> dict[str, object]:
    return {"name": "I", "datatype": "FP32", "shape": [-1]}


def _models_of_mlserver() -> dict[str, tuple[str, dict[str, object]]]:
    def sides(datatype: str, shape: list[int], inputs: int = 1, outputs: int = 1) -> dict[str, object]:
        return {
            side: [{"name": f"{word}{n}", "datatype": datatype, "shape": shape} for n in range(count)]
            for side, word, count in (("inputs", "INPUT", inputs), ("outputs", "OUTPUT", outputs))
        }

    found = {
        "simple": ("Sums", sides("INT32", [-1, 16], 2, 2)),
        "cls": ("Identity", sides("FP32", [-1, 4])),
        "slow": ("Slow", sides("INT32", [-1, -1])),
        "raises": ("Raises", sides("INT32", [-1])),
        "params": ("Parameters", {}),
        **{name: ("Decoded", {}) for name in ("words", "columns", "wholes", "pieces")},
        "reals": ("Decoded", {"inputs": [{**_reals(), "parameters": {"content_type": "np"}}]}),
    }
    # it has no BF16
    kept = (name for name in DATATYPES if name != "BF16")
    return {**found, **{f"identity_{name.lower()}": ("Identity", sides(name, [-1])) for name in kept}}


@contextmanager
def kserve(folder: Path) -> Iterator[Server]:
    """KServe's Python server with the models of ``kserve_server``."""
    http, grpc = free_port(), free_port()
    script = Path(__file__).parent / "kserve_server.py"
    limits = (f"--grpc_max_{way}_message_length={64 << 20}" for way in ("send", "receive"))
    command = [sys.executable, str(script), str(http), str(grpc), *limits]
    with _process(command, folder, f"http://127.0.0.1:{http}/v2/models/simple/ready"):
        yield Server(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")


@contextmanager
def _process(
    command: Sequence[str], folder: Path, ready: str, environment: dict[str, str] | None = None
) -> Iterator[None]:
    """Run ``command`` until the block ends, which begins when the URL ``ready`` answers 200."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, ready, log)
        yield
        if process.poll() is not None:
            raise EndedError(_ended(process, log))
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ended(process: subprocess.Popen[bytes], log: Path) -> str:
    return f"the server ended with {process.returncode}:\n{log.read_text(errors='replace')[-4000:]}"


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise AssertionError(f"the server did not become ready:\n{log.read_text(errors='replace')[-4000:]}")
