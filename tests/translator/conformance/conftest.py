"""One daemon with the example models for all tests of the kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import Datatype
from tests.e2e.daemon import ROOT, Daemon


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of a daemon, by transport; ``unix`` is GraphPipe alone, ``cpp`` the other grps. Over tcp
    a listener has one model: ``tcp`` has simple, ``tcp_identity_fp32`` that one, and so on."""
    folder: Path = tmp_path_factory.mktemp("conformance")
    listeners = {
        "http": {"listen": "127.0.0.1:0", "transport": "http"},
        "grpc": {"listen": "127.0.0.1:0", "transport": "grpc"},
        "brpc": {"listen": "127.0.0.1:0", "transport": "brpc"},
        "tcp": {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": "simple"},
        **{
            f"tcp_{model}": {"listen": f"unix:{folder}/{model}.sock", "transport": "tcp", "default_model": model}
            for model in (f"identity_{datatype.value.lower()}" for datatype in Datatype)
        },
        "unix": {
            "listen": f"unix:{folder}/graphpipe.sock",
            "transport": "http",
            "dialects": ["graphpipe"],
            "default_model": "digits",
        },
        "cpp": {
            "listen": "127.0.0.1:0",
            "transport": "http",
            "dialects": ["grps"],
            "flavors": {"grps": "cpp"},
        },
    }
    daemon = Daemon.start(
        folder,
        {
            "listeners": list(listeners.values()),
            "model_repository": [{"path": str(ROOT / "examples" / "models")}],
            "default_model": "identity_fp32",
        },
    )
    try:
        yield dict(zip(listeners, daemon.addresses, strict=True))
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unforeseen" in line["event"]], daemon.log
    finally:
        daemon.kill()
