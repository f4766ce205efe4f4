"""The comparison of devices starts, runs what the machine has and says what it leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.batched_models import served
from interlingua.protocols.registry import DIALECTS

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(200)
def test_every_dialect_is_measured_and_a_missing_gpu_is_reported() -> None:
    run = [sys.executable, "-m", "benchmarks.gpu", "--quick", "--json", "--only", "digits_onnxruntime_cpu"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    told = json.loads(done.stdout)
    assert {row["dialect"] for row in told["rows"]} == set(DIALECTS)
    for row in told["rows"]:
        assert (row["model"], row["device"], row["batch"]) == ("digits", "cpu", 1)
        assert row["rows_per_sec"] > 0
        assert row["bare_rows_per_sec"] > 0
        assert (row["busy"], row["copies"]) == (None, None)
    without = [engine for engine, devices in gpu.devices().items() if "cuda" not in devices]
    assert told["skipped"] == [f"{engine}: no GPU that it can use here: skipped" for engine in without]


def test_copies_are_counted(tmp_path: Path) -> None:
    _, resnet = served(tmp_path)
    chosen = [gpu.Setup(resnet, "onnxruntime", "cpu")]
    gpu.repository(tmp_path / "repository", chosen)
    held = gpu.copies(tmp_path, chosen, 2)
    found = {(dialect, transport): copies for (_, dialect, transport), copies in held.items()}
    # its tensors lie where the engine can read them; numbers as text are another matter
    assert found["graphpipe", "http"] == 0
    assert found["grps", "http"] > 1
    # the last tensor of a message of protobuf ends where its buffer does, at a place that the engine takes
    assert [found[dialect, "grpc"] for dialect in ("oip", "trtis", "grps", "tfserving")] == [0] * 4
    # a body puts a tensor at any address, from which it is copied once
    assert found["oip", "http"] <= 1
