"""The daemon with the model repository that Triton was recorded with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.golden_repository import LOADED, golden_repository
from tests.conformance.oip_client import Server
from tests.e2e.daemon import Daemon


@contextmanager
def golden_daemon(folder: Path) -> Iterator[Server]:
    """The daemon on that repository, into which clients may load whatever they send."""
    repository = {
        "path": str(golden_repository(folder / "models")),
        "control": "explicit",
        "overrides": "files",
        "load": list(LOADED),
    }
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": transport, "dialects": ["oip"]}
                for transport in ("http", "grpc")
            ],
            "model_repository": [repository],
        },
    )
    try:
        yield Server(*daemon.addresses)
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()
