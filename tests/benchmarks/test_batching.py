"""The comparison of schedulers runs, and says whether its targets were met."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.batched_models import DELAYS_MS, Served, config, served
from benchmarks.batching import CLIENTS, DAEMON, Question, Row, against_peers
from benchmarks.processes import Server
from interlingua.protocols.oip import codec_grpc
from interlingua.protocols.wire import GrpcRequest
from interlingua.runtime.model_config.pbtxt import read_config
from interlingua.schemas import InferResponse, Tensor

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, ...]:
    return served(tmp_path_factory.mktemp("models"))


@pytest.mark.timeout(200)
def test_every_delay_is_measured_with_every_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_ENVIRONMENT", "MLSERVER_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    run = [sys.executable, "-m", "benchmarks.batching", "--quick", "--json", "--only", "digits"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    rows = json.loads(done.stdout)["rows"]
    assert [(row["transport"], row["clients"], row["delay_ms"]) for row in rows] == [
        (transport, count, delay)
        for transport in ("grpc", "http")
        for count in CLIENTS
        for delay in DELAYS_MS
    ]
    for row in rows:
        assert row["rows_per_sec"] > 0
        assert row["cpu_us"] > 0
        if row["clients"] == 1:
            # it waits, though there is nobody to wait for
            assert row["p50_ms"] >= row["delay_ms"]


def test_a_wrong_answer_is_noticed(models: tuple[Served, ...], tmp_path: Path) -> None:
    digits = models[0]
    question = Question(digits, tmp_path)
    question.order(Server(0, {"grpc": ""}), "grpc", 0)
    opened = codec_grpc.open_infer(GrpcRequest(codec_grpc.METHOD, (tmp_path / "request").read_bytes()))
    _, form = codec_grpc.decode_infer(opened, question.signature)

    def answer(label: int) -> bytes:
        arrays = (np.array([[label]]), question.expected[1])
        outputs = tuple(
            Tensor.from_numpy(spec.name, array, spec.datatype)
            for spec, array in zip(question.signature.outputs, arrays, strict=True)
        )
        return bytes(codec_grpc.encode_infer(form, InferResponse("m", outputs)).message)

    label = int(question.expected[0][0, 0])
    question.check("grpc", ("", answer(label)))
    with pytest.raises(RuntimeError, match="output 'label' of digits is not what was expected"):
        question.check("grpc", ("", answer(label + 1)))


def test_targets_are_held_against_the_best_delay_of_each() -> None:
    def row(server: str, delay: int, rate: float, clients: int = CLIENTS[-1]) -> Row:
        return Row("digits", "grpc", clients, server, delay, rate, 1, 1, 1)

    rows = [
        row(DAEMON, 0, 900),
        row(DAEMON, 1, 1000),
        row(DAEMON, 0, 9000, clients=1),
        row("Triton", 1, 1100),
        row("MLServer", 1, 400),
        row("MLServer", 5, 500),
        replace(row("Triton", 0, 40), model="resnet"),
    ]
    found = {verdict.what.rpartition(" ")[2]: (verdict.ratio, verdict.met) for verdict in against_peers(rows)}
    assert found == {"Triton": (0.91, False), "MLServer": (2.0, True)}


@pytest.mark.parametrize("delay", DELAYS_MS)
def test_the_configuration_says_what_the_row_says(
    models: tuple[Served, ...], tmp_path: Path, delay: int
) -> None:
    (tmp_path / "config.pbtxt").write_text(config(models[1], delay, "onnxruntime"))
    told = read_config(tmp_path)
    assert told.max_batch_size == 8
    assert told.dynamic_batching is not None
    assert told.dynamic_batching.max_delay_us == delay * 1000
