"""One daemon with the example models for all tests of this folder that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.daemon import ROOT, Daemon


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Listeners, in order: HTTP with every dialect, gRPC, GraphPipe alone on a unix socket, and GraphPipe
    alone over TCP with a small request limit."""
    folder = tmp_path_factory.mktemp("examples")
    graphpipe = {"transport": "http", "dialects": ["graphpipe"], "default_model": "digits"}
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "http"},
                {"listen": "127.0.0.1:0", "transport": "grpc"},
                {"listen": f"unix:{folder}/graphpipe.sock", **graphpipe},
                {"listen": "127.0.0.1:0", **graphpipe, "max_request_bytes": 100_000},
            ],
            "model_repository": [{"path": str(ROOT / "examples" / "models")}],
            "default_model": "identity_fp32",
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
    finally:
        daemon.kill()
