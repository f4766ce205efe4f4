"""One daemon with the example models for all tests of this folder that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.daemon import ROOT, Daemon
from tests.e2e.trtis_models import LOADED, write_repository


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


@pytest.fixture(scope="session")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The version 1 models behind an HTTP and a gRPC listener with every dialect, and an HTTP listener with
    version 1 alone; clients may load and unload them."""
    folder = tmp_path_factory.mktemp("v1")
    daemon = Daemon.start(
        folder,
        {
            "server": {"id": "replica:7"},
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "http"},
                {"listen": "127.0.0.1:0", "transport": "grpc"},
                {"listen": "127.0.0.1:0", "transport": "http", "dialects": ["trtis"]},
            ],
            "model_repository": [
                {
                    "path": str(write_repository(folder / "models")),
                    "control": "explicit",
                    "load": list(LOADED),
                }
            ],
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()
