"""Models on the CPU and on a GPU through every dialect: ``python -m benchmarks.gpu [--quick] [--json]``.

For batches of 1 to 64 rows: rows per second through the daemon beside a bare loop of the same engine on
the same device, in turns, how busy the GPU was meanwhile, and how often the input was copied in the
host's memory. Where there is no GPU, or an engine cannot use it, that half is told and left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks import processes, progress
from benchmarks.batched_models import Served, config, served
from benchmarks.cases import CONFIG, http_request
from benchmarks.copies import copies_of
from benchmarks.processes import Clients, Loop, Server
from interlingua.protocols.registry import bindings
from interlingua.protocols.wire import GrpcRequest, HttpCall
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec

BATCHES = (1, 8, 64)
QUICK_BATCHES = (1,)
CLIENTS = 4
"""So many requests are under way at a time, to keep the device busy while answers travel."""

_MAX_BATCH_SIZE = 64
_TURNS, _SECS = 3, 2.0
_QUICK_TURNS, _QUICK_SECS = 1, 0.2
_LONGEST_MESSAGE = 512 << 20
_COPIED_ROWS = 8
_LARGE_BYTES = 256 << 10


@dataclass(frozen=True)
class Setup:
    """A model on an engine on a device; ``name`` is what the daemon serves it as."""

    model: Served
    engine: str
    device: str

    @property
    def name(self) -> str:
        """Model, engine and device."""
        return f"{self.model.name}_{self.engine}_{self.device}"


@dataclass(frozen=True)
class Row:
    """Medians over the turns. ``ratio`` is daemon to bare loop; ``busy`` the share of the time in which the
    GPU ran something, None without one; ``copies`` is None for inputs too small to tell."""

    model: str
    engine: str
    device: str
    dialect: str
    transport: str
    batch: int
    rows_per_sec: float
    bare_rows_per_sec: float
    ratio: float
    busy: float | None
    copies: float | None


Copies = dict[tuple[str, str, str], float]
"""By the name of a setup, dialect and transport."""


def devices() -> dict[str, list[str]]:
    """The devices that each engine can use here; an engine that is not installed has none."""
    found = {"onnxruntime": ["cpu"], "torch": []}
    gpu = shutil.which("nvidia-smi") is not None
    if gpu and "CUDAExecutionProvider" in ort.get_available_providers():
        found["onnxruntime"].append("cuda")
    if find_spec("torch") is not None:
        import torch

        found["torch"] = ["cpu", "cuda"] if gpu and torch.cuda.is_available() else ["cpu"]
    return found


def setups(folder: Path, found: dict[str, list[str]]) -> list[Setup]:
    """Every model on every engine and device that there is; their files are written to ``folder``."""
    models = [replace(model, max_batch_size=_MAX_BATCH_SIZE) for model in served(folder)]
    chosen = [Setup(model, "onnxruntime", device) for model in models for device in found["onnxruntime"]]
    if found["torch"]:
        from examples import make_resnet

        resnet = replace(models[-1], file=make_resnet.write_torch(folder))
        chosen += [Setup(resnet, "torch", device) for device in found["torch"]]
    return chosen


def repository(folder: Path, chosen: Sequence[Setup]) -> Path:
    """A repository with every setup under its name."""
    for setup in chosen:
        version = folder / setup.name / "1"
        version.mkdir(parents=True)
        kind = "KIND_GPU" if setup.device == "cuda" else "KIND_CPU"
        text = config(setup.model, 0, "pytorch" if setup.engine == "torch" else setup.engine, kind)
        (version.parent / "config.pbtxt").write_text(text)
        shutil.copy(setup.model.file, version / f"model{setup.model.file.suffix}")
    return folder


def messages(setup: Setup, batch: int) -> Iterator[tuple[str, str, HttpCall | GrpcRequest]]:
    """The request for ``batch`` rows in every dialect, over each of HTTP and gRPC that it has: dialect,
    transport and request. The tables of dialects are the list, so that none is forgotten."""
    name, dims = setup.model.input
    rows = setup.model.rows(batch)
    request = InferRequest(setup.name, (Tensor(name, Datatype.FP32, rows.shape, memoryview(rows.tobytes())),))
    outputs = tuple(
        TensorSpec(output, Datatype[kind], (-1, *shape)) for output, kind, shape in setup.model.outputs
    )
    signature = Signature((TensorSpec(name, Datatype.FP32, (-1, *dims)),), outputs, _MAX_BATCH_SIZE)
    for binding in bindings().values():
        if binding.transport in ("http", "grpc"):
            call, _ = binding.calls[Operation.INFER].encode(request, signature)
            yield binding.dialect, binding.transport, call


@contextmanager
def watching_gpu(there: bool) -> Iterator[list[float]]:
    """What nvidia-smi tells of how busy the GPU is, five times a second, as shares; complete afterwards."""
    told: list[float] = []
    if not there:
        yield told
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as watch:
        try:
            yield told
        finally:
            watch.terminate()
            assert watch.stdout is not None
            told += [float(line) / 100 for line in watch.stdout if line.strip().isdecimal()]


def copies(folder: Path, chosen: Sequence[Setup], batch: int) -> Copies:
    """How often an input of ``batch`` rows is copied, for models whose inputs are large enough to tell."""
    asked = {}
    for setup in chosen:
        nbytes = setup.model.rows(batch).nbytes
        if nbytes >= _LARGE_BYTES:
            for dialect, transport, call in messages(setup, batch):
                asked[setup.name, dialect, transport] = (call, nbytes)
    return {key: round(held, 1) for key, held in copies_of(_config(folder), folder, asked).items()}


def measure(
    setup: Setup,
    batch: int,
    server: Server,
    clients: Clients,
    loop: Loop,
    folder: Path,
    held: Copies,
    quick: bool,
) -> Iterator[Row]:
    """Every dialect with batches of ``batch`` rows, each in turns with the bare loop."""
    turns, secs = (_QUICK_TURNS, _QUICK_SECS) if quick else (_TURNS, _SECS)
    for dialect, transport, call in messages(setup, batch):
        wire = folder / "request"
        wire.write_bytes(_on_the_wire(call))
        order = {
            "transport": transport,
            "address": server.addresses[transport],
            "method": call.method,
            "request": str(wire),
            "clients": CLIENTS,
            "secs": secs,
        }
        rates, bare, busy = [], [], []
        for _ in range(turns):
            bare.append(loop.rows_per_sec(batch, secs))
            clients.connect(order)
            with watching_gpu(setup.device == "cuda") as told:
                done = clients.go()
            rates.append(done["count"] * batch / done["secs"])
            busy += told
        yield Row(
            setup.model.name,
            setup.engine,
            setup.device,
            dialect,
            transport,
            batch,
            round(statistics.median(rates), 1),
            round(statistics.median(bare), 1),
            round(statistics.median(a / b for a, b in zip(rates, bare, strict=True)), 2),
            round(statistics.fmean(busy), 2) if busy else None,
            held.get((setup.name, dialect, transport)),
        )


def _on_the_wire(call: HttpCall | GrpcRequest) -> bytes:
    if isinstance(call, GrpcRequest):
        return bytes(call.whole)
    target = f"{call.path}?{call.query}" if call.query else call.path
    return http_request(target, dict(call.headers), b"".join(call.parts))


def _config(folder: Path) -> dict[str, Any]:
    listeners = [{**listener, "max_request_bytes": _LONGEST_MESSAGE} for listener in CONFIG["listeners"]]
    models = [{"path": str(folder / "repository")}]
    return {**CONFIG, "listeners": listeners, "model_repository": models}


def rows(folder: Path, chosen: Sequence[Setup], quick: bool) -> Iterator[Row]:
    """Every setup in every dialect, as it is measured."""
    repository(folder / "repository", chosen)
    held = copies(folder, chosen, QUICK_BATCHES[0] if quick else _COPIED_ROWS)
    with ExitStack() as running:
        server = running.enter_context(processes.daemon(folder, _config(folder)))
        clients = running.enter_context(processes.clients())
        for setup in progress.each(chosen, lambda setup: setup.name):
            model = setup.model
            with processes.bare_loop(setup.engine, setup.device, model.file, *model.input) as loop:
                for batch in QUICK_BATCHES if quick else BATCHES:
                    yield from measure(setup, batch, server, clients, loop, folder, held, quick)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short turn with one row at a time")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of a table")
    parser.add_argument("--only", default="", metavar="TEXT", help="only setups whose name contains TEXT")
    arguments = parser.parse_args()
    found = devices()
    without = [engine for engine, usable in found.items() if "cuda" not in usable]
    skipped = [f"{engine}: no GPU that it can use here: skipped" for engine in without]
    measured = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        chosen = [setup for setup in setups(folder, found) if arguments.only in setup.name]
        if not arguments.json:
            progress.say("".join(f"{line}\n" for line in skipped) + _LINE.format(*_COLUMNS))
        for row in rows(folder, chosen, arguments.quick):
            measured.append(row)
            if not arguments.json:
                told = asdict(row)
                told["busy"] = None if row.busy is None else f"{row.busy:.0%}"
                progress.say(_LINE.format(*("" if each is None else each for each in told.values())))
    if arguments.json:
        progress.say(
            json.dumps({"skipped": skipped, "rows": [asdict(row) for row in measured]}, indent=2) + "\n"
        )
    return 0


_COLUMNS = (
    "model", "engine", "device", "dialect", "over", "batch", "rows/s", "bare", "ratio", "GPU busy", "copies"
)  # fmt: skip
_LINE = "{:7} {:12} {:6} {:10} {:5} {:>5} {:>10} {:>10} {:>6} {:>8} {:>6}\n"


if __name__ == "__main__":
    sys.exit(main())
