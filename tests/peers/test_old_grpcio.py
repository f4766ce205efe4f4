"""The cores of gRPC in clients of v1 and OIP cancel calls that they have not sent: no other call is lost."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.e2e.daemon import Daemon
from tests.peers import old_grpcio
from tests.peers.servers import ROOT

pytestmark = [pytest.mark.peers, pytest.mark.long, pytest.mark.timeout(180)]

SECS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with the messages that the clients send."""
    folder = tmp_path_factory.mktemp("old_grpcio")
    for kind, size in old_grpcio.SIZES.items():
        request = service_pb2.ModelInferRequest(model_name="echo", raw_input_contents=[np.random.bytes(size)])
        request.inputs.add(name="INPUT0", datatype="UINT8", shape=[size])
        (folder / kind).write_bytes(request.SerializeToString())
    return folder


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Daemon]:
    sides = {
        side: [{"name": name, "datatype": "UINT8", "shape": [-1]}]
        for side, name in (("inputs", "INPUT0"), ("outputs", "OUTPUT0"))
    }
    daemon = Daemon.start(
        folder,
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["oip"]}],
            "models": {"echo": {"backend": "identity", "signature": sides}},
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize("version", ["1.49.1", "1.59.5", "1.71.2"])
def test_uploads_survive_calls_that_are_cancelled_before_they_are_sent(
    daemon: Daemon, folder: Path, version: str
) -> None:
    environments = Path(os.environ.get("GRPCIO_ENVIRONMENTS", ROOT / ".venv-grpcio")).absolute()
    python = environments / version / "bin" / "python"
    assert python.exists(), f"no environment with grpcio {version} at {environments}: run `make peers`"
    done = subprocess.run(
        [str(python), old_grpcio.__file__, daemon.addresses[0], str(folder), str(SECS)],
        capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    assert set(ends["upload"]) == {"OK"}, ends
    assert "DEADLINE_EXCEEDED" in ends["small"] and set(ends["small"]) <= {"OK", "DEADLINE_EXCEEDED"}, ends
