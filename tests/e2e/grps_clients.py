"""What the grps tests share: a daemon with every transport, and a client for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.daemon import ROOT, Daemon
from tests.standins.grps_brpc import GrpsBrpc
from tests.standins.grps_client import GrpsGrpc, GrpsHttp

TRANSPORTS = ("http", "grpc", "brpc")
CLIENTS: dict[str, Any] = {"http": GrpsHttp, "grpc": GrpsGrpc, "brpc": GrpsBrpc}


@contextmanager
def daemon(folder: Path, config: dict[str, Any], transports: Sequence[str] = TRANSPORTS) -> Iterator[Daemon]:
    """A daemon with a listener for each of ``transports``, in order; it must stop in order too."""
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in transports]
    running = Daemon.start(folder, {"listeners": listeners, **config})
    try:
        yield running
        assert running.stop() == 0
        assert not [line for line in running.log if "unexpected error" in line["event"]], running.log
    finally:
        running.kill()


@contextmanager
def clients_of(running: Daemon) -> Iterator[dict[str, Any]]:
    """A client per transport of such a daemon."""
    clients = {
        transport: CLIENTS[transport](address)
        for transport, address in zip(TRANSPORTS, running.addresses, strict=True)
    }
    try:
        yield clients
    finally:
        for client in clients.values():
            client.close()


def examples(*names: str) -> list[dict[str, Any]]:
    """The example models of these names, as a model repository."""
    return [{"path": str(ROOT / "examples" / "models"), "load": list(names)}]
