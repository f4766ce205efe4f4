"""Messages of hundreds of megabytes through the daemon to another, both ways, under the limits that nobody
has configured: over gRPC they are 2 GiB less a byte everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc

from tests.e2e.daemon import Daemon

# two daemons and a client each hold a few copies of the message
pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

SIZE = 300 << 20
LISTENER = {"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["oip"]}
MODEL = {
    "backend": "identity",
    "signature": {
        "inputs": [{"name": "INPUT0", "datatype": "UINT8", "shape": [-1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "UINT8", "shape": [-1]}],
    },
}


def test_a_large_tensor_there_and_back(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("behind", "before")]
    for place in places:
        place.mkdir()
    behind = Daemon.start(places[0], {"listeners": [LISTENER], "models": {"echo": MODEL}})
    try:
        upstream = {"dialect": "oip", "transport": "grpc", "urls": behind.addresses}
        before = Daemon.start(
            places[1],
            {
                "listeners": [LISTENER],
                "models": {"echo": {"upstream": "behind"}},
                "upstreams": {"behind": upstream},
            },
        )
        try:
            array = np.arange(SIZE // 4, dtype=np.uint32).view(np.uint8)
            given = tritonclient.grpc.InferInput("INPUT0", array.shape, "UINT8")
            given.set_data_from_numpy(array)
            with tritonclient.grpc.InferenceServerClient(before.addresses[0]) as client:
                got = client.infer("echo", [given]).as_numpy("OUTPUT0")
            assert np.array_equal(got, array)
            assert before.stop() == 0
        finally:
            before.kill()
        assert behind.stop() == 0
    finally:
        behind.kill()
