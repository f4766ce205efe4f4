"""The scheduler beside its peers: ``python -m benchmarks.batching [--quick] [--json] [--only TEXT]``.

Throughput and CPU per row of the daemon with ``max_queue_delay`` 0, 1 and 5 ms at 1, 8 and 64 clients,
each with one row at a time; beside it, in the same run and in turns, Triton and MLServer where their
environments are given, on the same ONNX file with the same options, and a bare loop on ONNX Runtime.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers, processes, progress
from benchmarks.bare_loop import session
from benchmarks.batched_models import DELAYS_MS, Served, mlserver_models, repository, served
from benchmarks.cases import CONFIG, OIP_METHOD, http_request
from benchmarks.processes import Clients, Server
from benchmarks.targets import Verdict, load_average, report
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcAnswer, HttpReply
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec

CLIENTS = (1, 8, 64)
DAEMON, TRITON, MLSERVER = "interlingua", "Triton", "MLServer"
PEER_TARGETS = {TRITON: 1.0, MLSERVER: 2.0}
LOOP_TARGET = 1.1

_HTTP = DIALECTS["oip"].bindings["http"].calls[Operation.INFER]
_GRPC = DIALECTS["oip"].bindings["grpc"].calls[Operation.INFER]
_COLUMNS = ("model", "over", "clients", "server", "delay ms", "rows/s", "CPU us/row", "p50 ms", "p99 ms")
_LINE = "{:8} {:5} {:>7} {:12} {:>8} {:>9} {:>11} {:>9} {:>9}\n"
_HEAD = _LINE.format(*_COLUMNS)
_TURNS = {"digits": (5, 1.0), "resnet": (2, 2.0)}
_QUICK_TURNS = {"digits": (1, 0.3), "resnet": (1, 0.3)}
"""How many turns every server has in each row, and their seconds."""


@dataclass(frozen=True)
class Contender:
    """A server, what it is called, and over what it is asked."""

    name: str
    server: Server
    transports: tuple[str, ...]
    delays_ms: tuple[int, ...] = DELAYS_MS


@dataclass(frozen=True)
class Row:
    """Medians over the turns: rows per second, CPU microseconds of the server per row, milliseconds that half
    of the requests and all but one in a hundred took at most."""

    model: str
    transport: str
    clients: int
    server: str
    delay_ms: int
    rows_per_sec: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


class Question:
    """One row for ``model``, as it is sent over each transport, and whether an answer is right."""

    def __init__(self, model: Served, folder: Path) -> None:
        self.model = model
        self._file = folder / "request"
        name, dims = model.input
        rows = model.rows(1)
        specs = tuple(TensorSpec(name, Datatype[kind], (-1, *shape)) for name, kind, shape in model.outputs)
        self.signature = Signature((TensorSpec(name, Datatype.FP32, (-1, *dims)),), specs, 1)
        self._inputs = (Tensor(name, Datatype.FP32, rows.shape, memoryview(rows.tobytes())),)
        self.expected = session(str(model.file)).run(None, {name: rows})

    def order(self, server: Server, transport: str, delay_ms: int) -> dict[str, Any]:
        """What the clients are told, but for how many they are and for how long."""
        request = InferRequest(self.model.variant(delay_ms), self._inputs)
        call: Any
        if transport == "grpc":
            call, self._form = _GRPC.encode(request, self.signature)
            self._file.write_bytes(call.whole)
        else:
            call, self._form = _HTTP.encode(request, self.signature)
            self._file.write_bytes(http_request(call.path, dict(call.headers), b"".join(call.parts)))
        address = server.addresses[transport]
        return {
            "transport": transport,
            "address": address,
            "method": OIP_METHOD,
            "request": str(self._file),
        }

    def check(self, transport: str, answer: tuple[str, bytes]) -> None:
        """Raises ``RuntimeError`` where the answer to the last order is not what ONNX Runtime says here."""
        head, body = answer
        if transport == "grpc":
            response = _GRPC.decode(self._form, GrpcAnswer(body))
        else:
            lines = (line.partition(":") for line in head.lower().split("\r\n")[1:])
            headers = {name: value.strip() for name, _, value in lines}
            response = _HTTP.decode(self._form, HttpReply(200, headers, body))
        outputs = {tensor.name: tensor.numpy() for tensor in response.outputs}
        for (name, _, _), expected in zip(self.model.outputs, self.expected, strict=True):
            if not np.allclose(outputs[name], expected, rtol=1e-3, atol=1e-5):
                raise RuntimeError(f"output '{name}' of {self.model.name} is not what was expected")


def contenders(running: ExitStack, folder: Path, models: Sequence[Served]) -> list[Contender]:
    """The daemon, and the peers whose environments are given, each with all models."""
    for model in models:
        repository(folder / "ours", model, "onnxruntime")
    configuration = {**CONFIG, "model_repository": [{"path": str(folder / "ours")}]}
    daemon = running.enter_context(processes.daemon(folder, configuration))
    found = [Contender(DAEMON, daemon, ("grpc", "http"))]
    if place := peers.environment("TRITON_ENVIRONMENT"):
        for model in models:
            repository(folder / "triton_models", model, "python")
        own = folder / "triton"
        own.mkdir()
        server = running.enter_context(peers.triton(place, own, folder / "triton_models"))
        found.append(Contender(TRITON, server, ("grpc", "http")))
    if place := peers.environment("MLSERVER_ENVIRONMENT"):
        for model in models:
            mlserver_models(folder / "mlserver_models", model)
        own = folder / "mlserver"
        own.mkdir()
        server = running.enter_context(peers.mlserver(place, own, folder / "mlserver_models"))
        # it has no binary tensors over HTTP
        found.append(Contender(MLSERVER, server, ("grpc",), tuple(delay for delay in DELAYS_MS if delay)))
    return found


def measure(
    question: Question, clients: Clients, found: Sequence[Contender], transport: str, count: int, quick: bool
) -> Iterator[Row]:
    """Every server that speaks ``transport`` with every delay, in turns, so that a neighbour hits all."""
    model = question.model
    turns, secs = (_QUICK_TURNS if quick else _TURNS)[model.name]
    cells = [
        (contender, delay)
        for contender in found
        if transport in contender.transports
        for delay in contender.delays_ms
    ]
    told: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for _ in range(turns):
        for contender, delay in cells:
            server = contender.server
            order = {**question.order(server, transport, delay), "clients": count, "secs": secs}
            question.check(transport, clients.connect(order))
            before = server.cpu_secs()
            done = clients.go()
            cpu = (server.cpu_secs() - before) / done["count"] * 1e6
            numbers = (done["count"] / done["secs"], cpu, done["p50_ms"], done["p99_ms"])
            told.setdefault((contender.name, delay), []).append(numbers)
    for (name, delay), each in told.items():
        medians = [round(statistics.median(column), 1) for column in zip(*each, strict=True)]
        yield Row(model.name, transport, count, name, delay, *medians)


def against_peers(rows: Sequence[Row]) -> Iterator[Verdict]:
    """The daemon's best delay at the most clients against each peer's best, for the small model: of the large
    one every server runs as many rows as ONNX Runtime does."""
    best: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if row.clients == CLIENTS[-1] and row.model == "digits":
            key = row.model, row.transport, row.server
            best[key] = max(best.get(key, 0.0), row.rows_per_sec)
    for (model, transport, server), rate in best.items():
        if server in PEER_TARGETS:
            ratio = best[model, transport, DAEMON] / rate
            what = f"{model} over {transport}, {CLIENTS[-1]} clients: rows/s against {server}"
            yield Verdict(what, round(ratio, 2), PEER_TARGETS[server])


def against_loop(question: Question, clients: Clients, daemon: Contender, quick: bool) -> Verdict:
    """CPU per row of the daemon whose batches are full, against the bare loop at that size of batch, in
    turns."""
    model = question.model
    turns, secs = (_QUICK_TURNS if quick else _TURNS)[model.name]
    ratios = []
    with processes.bare_loop("onnxruntime", "cpu", model.file, *model.input) as loop:
        for _ in range(turns):
            order = question.order(daemon.server, "grpc", DELAYS_MS[-1])
            question.check("grpc", clients.connect({**order, "clients": CLIENTS[-1], "secs": secs}))
            before = daemon.server.cpu_secs()
            done = clients.go()
            cpu = (daemon.server.cpu_secs() - before) / done["count"]
            ratios.append(cpu / loop.cpu_per_row(model.max_batch_size, secs))
    what = f"{model.name}, batches of {model.max_batch_size}: CPU per row against a bare loop"
    return Verdict(what, round(statistics.median(ratios), 2), LOOP_TARGET, at_most=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batching", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short turn for each row")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    parser.add_argument("--only", default="", metavar="MODEL", help="digits or resnet alone")
    arguments = parser.parse_args()
    rows: list[Row] = []
    verdicts: list[Verdict] = []
    show: Callable[[str], object] = (lambda _: None) if arguments.json else progress.say
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        models = [model for model in served(folder) if arguments.only in model.name]
        found = contenders(running, folder, models)
        clients = running.enter_context(processes.clients())
        show(f"load {load_average()}, {', '.join(contender.name for contender in found)}\n")
        show(_HEAD)
        for model in models:
            question = Question(model, folder)
            cases = progress.each(
                product(("grpc", "http"), CLIENTS),
                lambda case, name=model.name: f"{name} over {case[0]}, {case[1]} clients",
            )
            for transport, count in cases:
                for row in measure(question, clients, found, transport, count, arguments.quick):
                    rows.append(row)
                    show(_LINE.format(*asdict(row).values()))
            if model.name == "resnet":
                verdicts.append(against_loop(question, clients, found[0], arguments.quick))
    report(rows, [*verdicts, *against_peers(rows)], as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
