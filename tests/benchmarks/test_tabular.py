"""The comparison with MLServer's scikit-learn runtime runs, and says whether its targets were met."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.tabular import DAEMON, MLSERVER, Row, verdicts


@pytest.mark.timeout(120)
def test_every_row_is_measured_without_mlserver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLSERVER_ENVIRONMENT", raising=False)
    run = [sys.executable, "-m", "benchmarks.tabular", "--quick", "--json", "--only", "logistic"]
    root = Path(__file__).parents[2]
    done = subprocess.run(run, cwd=root, capture_output=True, text=True, check=True, timeout=100)
    told = json.loads(done.stdout)
    assert [(row["batches"], row["transport"]) for row in told["rows"]] == [
        (batches, transport) for batches in (False, True) for transport in ("http", "grpc")
    ]
    assert all(row["per_sec"] > 0 and row["cpu_us"] > 0 for row in told["rows"])
    assert told["targets"] == []


def test_targets_are_ratios_of_one_row() -> None:
    theirs = Row("svm", False, "http", MLSERVER, 300.0, 1000.0, 1.0, 2.0)
    ours = replace(theirs, server=DAEMON, per_sec=900.0, cpu_us=310.0)
    rate, cpu = verdicts([ours, theirs])
    assert (rate.ratio, rate.met, cpu.ratio, cpu.met) == (3.0, True, 0.31, False)
