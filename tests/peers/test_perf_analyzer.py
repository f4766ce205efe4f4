"""perf_analyzer, Triton's load generator, measures the daemon and finds everything that it asks for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.oip_checks import Server
from tests.e2e.oip_golden import golden_daemon
from tests.peers.servers import ROOT

pytestmark = [pytest.mark.peers, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with golden_daemon(tmp_path_factory.mktemp("perf_analyzer")) as running:
        yield running


@pytest.mark.parametrize("memory", ["none", "system"])
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_perf_analyzer(server: Server, tmp_path: Path, transport: str, memory: str) -> None:
    environment = Path(os.environ.get("PERF_ANALYZER_ENVIRONMENT", ROOT / ".venv-perf")).absolute()
    command = environment / "bin" / "perf_analyzer"
    assert command.exists(), f"no perf_analyzer in {environment}: run `make peers`"
    table = tmp_path / "table.csv"
    done = subprocess.run(
        [
            str(command), "-m", "simple", "-u", getattr(server, transport), "-i", transport,
            "--shared-memory", memory, "--concurrency-range", "2", "-p", "500", "-s", "1000", "-r", "3",
            "-f", str(table),
        ],
        env={**os.environ, "LD_LIBRARY_PATH": str(environment / "lib")},
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    head, row = table.read_text().splitlines()[:2]
    found = dict(zip(head.split(","), row.split(","), strict=False))
    assert float(found["Inferences/Second"]) > 0
    # the server's own numbers, out of its statistics
    assert int(found["Server Compute Infer"]) > 0
