"""What the version 1 tests share: clients of a daemon, daemons of their own, expected errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.trtis_models import write_repository
from tests.standins.trtis_client import TrtisError
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp


@contextmanager
def clients_of(daemon: Daemon) -> Iterator[dict[str, Any]]:
    """A client per transport, for a daemon whose first listeners are HTTP and gRPC."""
    clients = {"http": TrtisHttp(daemon.addresses[0]), "grpc": TrtisGrpc(daemon.addresses[1])}
    try:
        yield clients
    finally:
        for client in clients.values():
            client.close()


@contextmanager
def refused(code: str, begins: str) -> Iterator[None]:
    """The block ends with the server's error ``code``, whose text begins so."""
    with pytest.raises(TrtisError) as caught:
        yield
    assert caught.value.code == code
    assert caught.value.message.startswith(begins), caught.value.message


@dataclass(frozen=True)
class Running:
    """A daemon of a test's own, and a client for each transport."""

    daemon: Daemon
    http: TrtisHttp
    grpc: TrtisGrpc


@contextmanager
def running(folder: Path, repository: dict[str, Any], **server: Any) -> Iterator[Running]:
    """Start a daemon with the version 1 models and ``repository``'s options; it must stop in order."""
    daemon = Daemon.start(
        folder,
        {
            "server": server,
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "http", "dialects": ["trtis"]},
                {"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["trtis"]},
            ],
            "model_repository": [{"path": str(write_repository(folder / "models")), **repository}],
        },
    )
    try:
        with clients_of(daemon) as clients:
            yield Running(daemon, clients["http"], clients["grpc"])
        assert daemon.stop() == 0
    finally:
        daemon.kill()
