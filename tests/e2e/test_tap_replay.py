"""What a tap of the real daemon has written, dialect by dialect, and what comes of replaying it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas import Datatype, Tensor
from tests.e2e.daemon import ROOT, Daemon
from translator.cli import main
from translator.recording.files import RecordingReader
from translator.recording.record import Record

WIRES = [("oip", "http"), ("oip", "grpc"), ("trtis", "http"), ("trtis", "grpc"), ("graphpipe", "http")] + [
    ("grps", transport) for transport in ("http", "grpc", "brpc")
]


def listeners() -> list[dict[str, str]]:
    return [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc", "brpc")]


def start(folder: Path, **options: Any) -> Daemon:
    models = {"path": str(ROOT / "examples" / "models"), "load": ["identity_fp32", "identity_uint8"]}
    return Daemon.start(folder, {"listeners": listeners(), "model_repository": [models], **options})


def address(daemon: Daemon, transport: str) -> str:
    return daemon.addresses[("http", "grpc", "brpc").index(transport)]


def ask(daemon: Daemon, dialect: str, transport: str, model: str, value: str) -> None:
    where = ["--dialect", dialect, "--transport", transport, "--url", address(daemon, transport)]
    assert main(["infer", *where, "--model", model, "--input", f"INPUT0={value}"]) == 0


def read(path: Path) -> list[Record]:
    with RecordingReader(path) as reader:
        records = list(reader)
    assert not reader.damage
    return records


def npy(path: Path, values: list[float]) -> str:
    import numpy as np

    np.save(path, np.array(values, np.float32))
    return f"@{path}"


def test_what_came_in_any_dialect_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "taps" / "r"
    daemon = start(tmp_path, tap={"path": str(path), "models": ["identity_fp*"], "headers": ["user-agent"]})
    try:
        for number, wire in enumerate(WIRES):
            ask(daemon, *wire, "identity_fp32", npy(tmp_path / "x.npy", [number, 0.5]))
        ask(daemon, "oip", "http", "identity_uint8", "[1]")
        assert daemon.stop() == 0
    finally:
        daemon.kill()

    records = read(path)

    assert [record.dialect for record in records] == [dialect for dialect, _ in WIRES]
    for number, record in enumerate(records):
        [x], [y] = record.request.inputs, record.answer.responses[0].outputs
        assert x.numpy().tolist() == y.numpy().tolist() == [number, 0.5]
        assert (record.request.model, record.answer.answered_by) == ("identity_fp32", "identity_fp32")
        assert record.answer.elapsed_ns > 0
        assert record.answer.error is None
        assert set(record.headers) <= {"user-agent"}
    assert "decode" in records[0].request.context.timings
