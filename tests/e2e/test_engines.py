"""Either engine of a listener serves the same clients, and lets their calls end when the daemon stops."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.e2e.daemon import WAIT_SECS, Daemon
from tests.e2e.test_lifecycle import IDENTITY, slow_model


@pytest.mark.parametrize("engine", ["native", "library"])
def test_an_engine_serves_and_lets_calls_end(engine: str, tmp_path: Path) -> None:
    config = {
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": transport, "engine": engine}
            for transport in ("http", "grpc")
        ],
        "admin": {"listen": "127.0.0.1:0"},
        "models": {
            "identity": IDENTITY,
            "slow": {"backend": "onnxruntime", "path": str(slow_model(tmp_path))},
        },
    }
    data = np.arange(6, dtype=np.float32)
    turns = triton_grpc.InferInput("TURNS", [], "INT64")
    turns.set_data_from_numpy(np.array(1_500_000))
    daemon = Daemon.start(tmp_path, config)
    try:
        over_http, over_grpc = daemon.addresses
        with (
            triton_http.InferenceServerClient(over_http) as old,
            triton_grpc.InferenceServerClient(over_grpc) as new,
            ThreadPoolExecutor(1) as threads,
        ):
            for client, kind in ((old, triton_http), (new, triton_grpc)):
                tensor = kind.InferInput("INPUT0", [6], "FP32")
                tensor.set_data_from_numpy(data)
                np.testing.assert_array_equal(client.infer("identity", [tensor]).as_numpy("OUTPUT0"), data)
            running = threads.submit(new.infer, "slow", [turns])
            daemon.until_in_flight(1)
            assert not running.done()
            daemon.process.send_signal(signal.SIGTERM)
            assert running.result(WAIT_SECS).as_numpy("TOTAL") == 1_500_000
            assert daemon.process.wait(WAIT_SECS) == 0
    finally:
        daemon.kill()
