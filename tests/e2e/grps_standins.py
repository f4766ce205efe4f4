"""Stand-ins of both original grps servers over every transport, for daemons that have them as upstreams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.background import Background
from tests.e2e.grps_clients import TRANSPORTS
from tests.standins.grps_brpc import BrpcServing
from tests.standins.grps_grpc_server import start_grpc
from tests.standins.grps_http_server import grps_http_server
from tests.standins.grps_server import GrpsServer

FLAVORS = ("py", "cpp")
STANDINS = tuple(f"{flavor}_grps_{transport}" for flavor in FLAVORS for transport in TRANSPORTS)
"""The upstreams: a server of each flavor over each transport."""


@contextmanager
def served_standins() -> Iterator[tuple[dict[str, GrpsServer], dict[str, str]]]:
    """The servers by flavor, which are online, and the addresses of ``STANDINS``."""
    background = Background()
    standins = {
        flavor: GrpsServer(flavor, online={"all": True, "http": True, "grpc": True, "brpc": True})
        for flavor in FLAVORS
    }
    stopping = []
    urls: dict[str, str] = {}
    for flavor, server in standins.items():
        urls[f"{flavor}_grps_http"] = background.serve(grps_http_server(server, recut=100))
        listening, port = background.run(start_grpc(server))
        urls[f"{flavor}_grps_grpc"] = f"127.0.0.1:{port}"
        serving = BrpcServing(server)
        urls[f"{flavor}_grps_brpc"] = f"127.0.0.1:{background.run(serving.start())}"
        stopping += [lambda listening=listening: listening.stop(None), serving.stop]
    try:
        yield standins, urls
    finally:
        for stop in stopping:
            background.run(stop())
        background.close()
