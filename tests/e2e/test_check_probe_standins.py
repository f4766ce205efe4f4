"""What ``check --probe`` says of servers that are not ours, as the stand-ins of each dialect answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interlingua.translator.config import parse
from interlingua.translator.probe.upstreams import Probed, probe
from tests.e2e.background import Background
from tests.standins import graphpipe_server, oip_grpc_server, oip_http_server, trtis_server
from tests.standins.grps_brpc import BrpcServing
from tests.standins.grps_grpc_server import start_grpc
from tests.standins.grps_http_server import grps_http_server
from tests.standins.grps_server import GrpsServer

KINDS = [
    *(("oip", over) for over in ("http", "grpc")),
    *(("trtis", over) for over in ("http", "grpc")),
    ("graphpipe", "http"),
    *(("grps", over) for over in ("http", "grpc", "brpc")),
]
TENSORS = (["INPUT0", "INPUT1"], ["OUTPUT0", "OUTPUT1"])


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[tuple[str, str], str]]:
    background = Background()
    v1, grps = trtis_server.TrtisServer(trtis_server.Seen()), GrpsServer("cpp")
    grps.health("http", "online")
    pipe = graphpipe_server.graphpipe_server(graphpipe_server.Seen(), TENSORS, "int32")
    bridge = BrpcServing(grps)
    over_grpc = {
        "oip": background.run(oip_grpc_server.start(oip_grpc_server.Seen())),
        "trtis": background.run(trtis_server.start_grpc(v1)),
        "grps": background.run(start_grpc(grps)),
    }
    yield {
        ("oip", "http"): background.serve(oip_http_server.oip_http_server(oip_http_server.Seen())),
        ("trtis", "http"): background.serve(trtis_server.trtis_http_server(v1)),
        ("graphpipe", "http"): background.serve(pipe),
        ("grps", "http"): background.serve(grps_http_server(grps)),
        ("grps", "brpc"): f"127.0.0.1:{background.run(bridge.start())}",
        **{(name, "grpc"): f"127.0.0.1:{port}" for name, (_, port) in over_grpc.items()},
    }
    background.run(bridge.stop())
    for listening, _ in over_grpc.values():
        background.run(listening.stop(None))
    background.close()


async def requested(dialect: str, transport: str, url: str) -> Probed:
    config = f"""
listeners: [{{listen: "127.0.0.1:0", transport: http}}]
upstreams: {{there: {{dialect: {dialect}, transport: {transport}, urls: ["{url}"]}}}}
"""
    [found] = await probe(parse(config), 5.0)
    return found


@pytest.mark.parametrize("declared", KINDS, ids="/".join)
@pytest.mark.parametrize("real", KINDS, ids="/".join)
async def test_what_a_server_speaks(
    servers: dict[tuple[str, str], str], real: tuple[str, str], declared: tuple[str, str]
) -> None:
    found = await requested(*declared, servers[real])
    if real == declared:
        assert not found.faults
        return
    [(_, text)] = found.faults
    names = {"oip": "OIP v2", "trtis": "TRTIS v1", "graphpipe": "GraphPipe", "grps": "grps"}
    assert text.startswith(f"{servers[real]} answers {names[real[0]]} over {real[1]}; not "), text


async def test_servers_say_who_they_are(servers: dict[tuple[str, str], str]) -> None:
    assert (await requested("trtis", "grpc", servers["trtis", "grpc"])).name
    # the stand-in has no metadata of the server
    assert (await requested("oip", "http", servers["oip", "http"])).name == ""
