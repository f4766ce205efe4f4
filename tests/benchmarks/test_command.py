"""The benchmark runs, and would notice a server that answers something else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import load, processes
from benchmarks.cases import CASES, Case

ROOT = Path(__file__).parents[2]


@pytest.fixture
def order(tmp_path: Path) -> dict[str, Any]:
    request, expected = CASES[2].request()
    (tmp_path / "request").write_bytes(request)
    (tmp_path / "expected").write_bytes(expected)
    files = {"request": str(tmp_path / "request"), "expected": str(tmp_path / "expected")}
    return {**files, "transport": "http", "method": "", "count": 5, "secs": 10}


def test_every_row_has_a_daemon_and_a_bare_server() -> None:
    run = [sys.executable, "-m", "benchmarks", "--quick", "--json", "--only", "graphpipe tcp"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100)
    rows = json.loads(done.stdout)["rows"]
    assert [row["bytes"] for row in rows] == [64, 65_536, 4_194_304]
    for row in rows:
        assert row["daemon_us"] > 0
        assert row["bare_us"] > 0
        assert row["verdict"] == ("ok" if row["ratio"] <= row["target"] else "over")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}, {case.size}")
def test_a_request_carries_its_tensor(case: Case) -> None:
    request, expected = case.request()
    assert expected in request
    assert len(request) > case.size


def test_cpu_time_is_that_of_the_server(order: dict[str, Any]) -> None:
    with processes.floor("http") as server:
        before = server.cpu_secs()
        told = load.drive({**order, "address": server.addresses["http"], "count": 200})
        assert told["count"] == 200
        assert 0 < server.cpu_secs() - before < 5


def test_a_refusal_does_not_count_as_an_answer(order: dict[str, Any]) -> None:
    with processes.floor("json") as server, pytest.raises(RuntimeError, match="the server answered"):
        load.drive({**order, "address": server.addresses["http"]})


def test_a_wrong_answer_does_not_either(order: dict[str, Any]) -> None:
    Path(order["expected"]).write_bytes(b"something else")
    with (
        processes.floor("http") as server,
        pytest.raises(RuntimeError, match="not the one that was expected"),
    ):
        load.drive({**order, "address": server.addresses["http"]})
