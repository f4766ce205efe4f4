"""Servers of other projects, each in a process and, where it needs one, an environment of its own.

``make peers`` makes the environments; TRITON_ENVIRONMENT and MLSERVER_ENVIRONMENT name them. KServe is
among the test dependencies: its process alone must be another, since its messages clash with those of
tritonclient. All listen on 127.0.0.1 alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks import peers
from tests.conformance.golden_repository import golden_repository
from tests.conformance.oip_client import Server
from tests.ports import free_port

ROOT = Path(__file__).parents[2]

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
    assert environment.is_dir(), f"no environment with nvidia-pytriton at {environment}: run `make peers`"
    ports = _free_ports()
    stated = ("--model-control-mode=explicit", *(f"--load-model={name}" for name in models), *options)
    models_at = repository or golden_repository(folder / "models")
    with _watched(peers.triton_process(environment, folder, models_at, ports, stated), folder):
        yield Server(**{name: f"127.0.0.1:{port}" for name, port in ports.items()})


@contextmanager
def mlserver(folder: Path) -> Iterator[Server]:
    """MLServer with the models of ``mlserver_models``."""
    environment = Path(os.environ.get("MLSERVER_ENVIRONMENT", ROOT / ".venv-mlserver")).absolute()
    assert environment.is_dir(), f"no environment with mlserver at {environment}: run `make peers`"
    for name, (kind, sides) in _models_of_mlserver().items():
        place = folder / name
        place.mkdir()
        shutil.copy(Path(__file__).parent / "mlserver_models.py", place)
        described = {"name": name, "implementation": f"mlserver_models.{kind}", "platform": "python", **sides}
        (place / "model-settings.json").write_text(
            json.dumps({**described, "parameters": {"version": "1", "uri": "."}})
        )
    ports = _free_ports()
    with _watched(peers.mlserver_process(environment, folder, folder, ports), folder):
        http, grpc = (f"127.0.0.1:{ports[name]}" for name in ("http", "grpc"))
        yield Server(http, grpc, binary=False, ends_streams=False)


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
        "encoded": ("Encoded", {}),
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
    ready = f"http://127.0.0.1:{http}/v2/models/simple/ready"
    with _watched(peers.running(command, folder, ready), folder):
        yield Server(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")


def _free_ports() -> dict[str, int]:
    return {name: free_port() for name in ("http", "grpc", "metrics")}


@contextmanager
def _watched(serving: AbstractContextManager[subprocess.Popen[bytes]], folder: Path) -> Iterator[None]:
    """Run a server in ``folder``. Raises ``EndedError`` if it ended by itself before the block did."""
    with serving as process:
        yield
        if process.poll() is not None:
            words = f"the server ended with {process.returncode}:\n{peers.end_of_log(folder)}"
            raise EndedError(words)
