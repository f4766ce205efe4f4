"""Models of scikit-learn beside MLServer: ``python -m benchmarks.tabular [--quick] [--json] [--only TEXT]``.

Requests per second and CPU per request with 64 clients of one row each, over JSON and gRPC. Both servers have
the same repository, MLServer's own, in the same run and in turns; every answer is the library's.
MLSERVER_ENVIRONMENT names the environment of MLServer; without it the daemon is measured alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from benchmarks import peers, processes, progress
from benchmarks.cases import CONFIG, OIP_METHOD, http_request
from benchmarks.processes import Clients, Server
from benchmarks.targets import Verdict, load_average, report
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcAnswer
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec

CLIENTS = 64
DAEMON, MLSERVER = "interlingua", "MLServer"
RATE_TARGET, CPU_TARGET = 3.0, 0.3

_GRPC = DIALECTS["oip"].bindings["grpc"].calls[Operation.INFER]
_BATCHING = {"max_batch_size": CLIENTS, "max_batch_time": 0.002}
_LINE = "{:12} {:>8} {:5} {:12} {:>11} {:>15} {:>8} {:>8}\n"
_HEAD = _LINE.format("model", "batches", "over", "server", "requests/s", "CPU us/request", "p50 ms", "p99 ms")
_TURNS, _QUICK_TURNS = (5, 1.5), (1, 0.4)
"""How many turns every server has in each row, and their seconds."""


@dataclass(frozen=True)
class Row:
    """Medians over the turns, of CPU microseconds of the whole server."""

    model: str
    batches: bool
    transport: str
    server: str
    per_sec: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


def trained() -> dict[str, Any]:
    """Models of handwritten digits: MLServer's own example is an SVM of them."""
    images, labels = load_digits(return_X_y=True)
    models = (SVC(gamma=0.001), LogisticRegression(max_iter=200), RandomForestClassifier(10, random_state=0))
    return {
        name: model.fit(images[:900], labels[:900])
        for name, model in zip(("svm", "logistic", "forest"), models, strict=True)
    }


def repository(folder: Path, models: dict[str, Any]) -> Path:
    """MLServer's repository of ``models``, each once more with adaptive batches."""
    for name, model in models.items():
        for batches in (False, True):
            place = folder / _named(name, batches)
            place.mkdir(parents=True)
            joblib.dump(model, place / "model.joblib")
            settings = {
                "name": place.name,
                "implementation": "mlserver_sklearn.SKLearnModel",
                "parameters": {"uri": "./model.joblib", "version": "1"},
                **(_BATCHING if batches else {}),
            }
            (place / "model-settings.json").write_text(json.dumps(settings))
    return folder


class Question:
    """One row for ``model``, as it is sent over each transport, and whether an answer is right."""

    def __init__(self, model: Any, folder: Path) -> None:
        self._row: NDArray[np.float64] = load_digits().data[901:902]
        self._expected = int(model.predict(self._row)[0])
        self._file = folder / "request"
        specs = (
            (TensorSpec("predict", Datatype.FP64, (-1, 64)),),
            (TensorSpec("predict", Datatype.INT64, (-1, 1)),),
        )
        self._signature = Signature(*specs)

    def order(self, server: Server, transport: str, name: str) -> dict[str, Any]:
        """The arguments of the clients, except the duration."""
        if transport == "grpc":
            tensor = Tensor.from_numpy("predict", self._row)
            call, self._form = _GRPC.encode(InferRequest(name, (tensor,)), self._signature)
            self._file.write_bytes(call.whole)  # type: ignore[union-attr]
        else:
            given = {
                "name": "predict",
                "datatype": "FP64",
                "shape": [1, 64],
                "data": self._row.ravel().tolist(),
            }
            body = json.dumps({"inputs": [given]}).encode()
            headers = {"Content-Type": "application/json"}
            self._file.write_bytes(http_request(f"/v2/models/{name}/infer", headers, body))
        return {
            "transport": transport,
            "address": server.addresses[transport],
            "method": OIP_METHOD,
            "request": str(self._file),
            "clients": CLIENTS,
        }

    def check(self, transport: str, answer: tuple[str, bytes]) -> None:
        """Raises ``RuntimeError`` if the answer to the last order is not the library's."""
        if transport == "grpc":
            (output,) = _GRPC.decode(self._form, GrpcAnswer(answer[1])).outputs  # type: ignore[arg-type]
            found = output.numpy().ravel().tolist()
        else:
            (told,) = json.loads(answer[1])["outputs"]
            found = told["data"]
        if found != [self._expected]:
            raise RuntimeError(f"the answer is {found}, expected is {self._expected}")


def measure(
    model: str, question: Question, clients: Clients, servers: dict[str, Server], quick: bool
) -> Iterator[Row]:
    """Every server over each transport, with and without batches, in turns, so that a neighbour hits all."""
    turns, secs = _QUICK_TURNS if quick else _TURNS
    cases = product((False, True), ("http", "grpc"))
    for batches, transport in progress.each(cases, lambda case: f"{_named(model, case[0])} over {case[1]}"):
        found: dict[str, list[tuple[float, ...]]] = {}
        for _ in range(turns):
            for name, server in servers.items():
                order = question.order(server, transport, _named(model, batches))
                question.check(transport, clients.connect({**order, "secs": secs}))
                before = server.cpu_secs()
                done = clients.go()
                cpu = (server.cpu_secs() - before) / done["count"] * 1e6
                figures = (done["count"] / done["secs"], cpu, done["p50_ms"], done["p99_ms"])
                found.setdefault(name, []).append(figures)
        for name, each in found.items():
            medians = [round(statistics.median(column), 1) for column in zip(*each, strict=True)]
            yield Row(model, batches, transport, name, *medians)


def verdicts(rows: Sequence[Row]) -> Iterator[Verdict]:
    """The daemon against MLServer in each row."""
    by_server = {(row.model, row.batches, row.transport, row.server): row for row in rows}
    for (model, batches, transport, server), row in by_server.items():
        if server == MLSERVER:
            ours = by_server[model, batches, transport, DAEMON]
            what = f"{_named(model, batches)} over {transport}"
            rate, cpu = ours.per_sec / row.per_sec, ours.cpu_us / row.cpu_us
            yield Verdict(f"{what}: requests/s", round(rate, 2), RATE_TARGET, at_most=False)
            yield Verdict(f"{what}: CPU per request", round(cpu, 3), CPU_TARGET, at_most=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabular", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short turn for each row")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    parser.add_argument("--only", default="", metavar="MODEL", help="svm, logistic or forest alone")
    arguments = parser.parse_args()
    show: Callable[[str], object] = (lambda _: None) if arguments.json else progress.say
    rows: list[Row] = []
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        models = {name: model for name, model in trained().items() if arguments.only in name}
        place = repository(folder / "models", models)
        config = {**CONFIG, "model_repository": [{"path": str(place), "allow_pickle": True}]}
        servers = {DAEMON: running.enter_context(processes.daemon(folder, config))}
        if environment := peers.environment("MLSERVER_ENVIRONMENT"):
            own = folder / "mlserver"
            own.mkdir()
            servers[MLSERVER] = running.enter_context(peers.mlserver(environment, own, place))
        clients = running.enter_context(processes.clients())
        show(f"load {load_average()}\n{_HEAD}")
        for name, model in models.items():
            for row in measure(name, Question(model, folder), clients, servers, arguments.quick):
                rows.append(row)
                show(
                    _LINE.format(
                        *({True: "yes", False: "no"}.get(each, each) for each in asdict(row).values())
                    )
                )
    report(rows, list(verdicts(rows)), as_json=arguments.json)
    return 0


def _named(model: str, batches: bool) -> str:
    return f"{model}_batched" if batches else model


if __name__ == "__main__":
    sys.exit(main())
