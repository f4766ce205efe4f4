"""Clients of one dialect, servers of another, the daemon between them.

The servers import nothing of ours, the clients are those of other projects.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from graphpipe import remote

from tests.e2e.background import Background
from tests.e2e.daemon import Daemon
from tests.standins import graphpipe_server, oip_grpc_server, oip_http_server

A = np.arange(32, dtype=np.int32).reshape(2, 16)
B = np.full((2, 16), 3, dtype=np.int32)
SIDES = (["INPUT0", "INPUT1"], ["OUTPUT0", "OUTPUT1"])
UPSTREAMS = ["graphpipe", "oip_grpc", "oip_grpc_typed", "oip_http", "oip_http_json"]


@dataclass
class World:
    """The daemon, and what each upstream saw."""

    http: str
    grpc: str
    graphpipe: graphpipe_server.Seen = field(default_factory=graphpipe_server.Seen)
    oip_grpc: oip_grpc_server.Seen = field(default_factory=oip_grpc_server.Seen)
    oip_grpc_typed: oip_grpc_server.Seen = field(default_factory=oip_grpc_server.Seen)
    oip_http: oip_http_server.Seen = field(default_factory=oip_http_server.Seen)
    oip_http_json: oip_http_server.Seen = field(default_factory=oip_http_server.Seen)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    background = Background()
    seen = World("", "")
    grpc_server, grpc_port = background.run(oip_grpc_server.start(seen.oip_grpc))
    typed_server, typed_port = background.run(oip_grpc_server.start(seen.oip_grpc_typed, typed=True))
    urls = {
        "graphpipe": background.serve(graphpipe_server.graphpipe_server(seen.graphpipe, SIDES, "int32")),
        "oip_grpc": f"127.0.0.1:{grpc_port}",
        "oip_grpc_typed": f"127.0.0.1:{typed_port}",
        "oip_http": background.serve(oip_http_server.oip_http_server(seen.oip_http)),
        "oip_http_json": background.serve(oip_http_server.oip_http_server(seen.oip_http_json, binary=False)),
    }
    renames = {"inputs": {"left": "INPUT0", "right": "INPUT1"}, "outputs": {"sum": "OUTPUT0"}}
    config: dict[str, Any] = {
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["oip"]},
        ],
        "models": {
            **{name: {"upstream": name, "remote_model": "simple"} for name in UPSTREAMS},
            "graphpipe": {"upstream": "graphpipe"},
            "renamed": {"upstream": "oip_grpc", "remote_model": "simple", **renames},
            "lost": {"upstream": "oip_grpc", "remote_model": "nothing_like_it", "required": False},
            "down": {"upstream": "down", "required": False},
        },
        "upstreams": {
            name: {
                "dialect": name.split("_")[0],
                "transport": "grpc" if "grpc" in name else "http",
                "urls": [url],
                **({"flavor": "mlserver"} if name == "oip_http_json" else {}),
            }
            for name, url in {**urls, "down": "127.0.0.1:1"}.items()
        },
    }
    config["upstreams"]["down"] = {"dialect": "oip", "transport": "http", "urls": ["127.0.0.1:1"]}
    daemon = Daemon.start(tmp_path_factory.mktemp("bridge"), config)
    seen.http, seen.grpc = daemon.addresses
    try:
        yield seen
        assert daemon.stop() == 0
    finally:
        daemon.kill()
        background.run(grpc_server.stop(None))
        background.run(typed_server.stop(None))
        background.close()


def triton_inputs(module: Any, names: tuple[str, str]) -> list[Any]:
    inputs = []
    for name, array in zip(names, (A, B), strict=True):
        given = module.InferInput(name, array.shape, "INT32")
        given.set_data_from_numpy(array)
        inputs.append(given)
    return inputs


def by_graphpipe(world: World, model: str, names: tuple[str, str]) -> list[Any]:
    return list(remote.execute_multi(f"http://{world.http}/graphpipe/{model}", [A, B], None, None))


def by_triton_http(world: World, model: str, names: tuple[str, str]) -> list[Any]:
    with triton_http.InferenceServerClient(world.http) as client:
        answer = client.infer(model, triton_inputs(triton_http, names), request_id="seven")
    assert answer.get_response()["id"] == "seven"
    assert answer.get_response()["model_name"] == model
    return [answer.as_numpy(output["name"]) for output in answer.get_response()["outputs"]]


def by_triton_grpc(world: World, model: str, names: tuple[str, str]) -> list[Any]:
    with triton_grpc.InferenceServerClient(world.grpc) as client:
        answer = client.infer(model, triton_inputs(triton_grpc, names), request_id="seven")
    assert answer.get_response().id == "seven"
    assert answer.get_response().model_name == model
    return [answer.as_numpy(output.name) for output in answer.get_response().outputs]


CLIENTS = [by_graphpipe, by_triton_http, by_triton_grpc]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_any_client_reaches_any_upstream(world: World, client: Any, upstream: str) -> None:
    total, difference = client(world, upstream, ("INPUT0", "INPUT1"))
    assert total.dtype == np.int32 and (total == A + B).all()
    assert (difference == A - B).all()


@pytest.mark.parametrize("client", CLIENTS)
def test_names_are_translated_both_ways(world: World, client: Any) -> None:
    total, difference = client(world, "renamed", ("left", "right"))
    assert (total == A + B).all() and (difference == A - B).all()
    assert [tensor.name for tensor in world.oip_grpc.requests[-1].inputs] == ["INPUT0", "INPUT1"]


def test_renamed_outputs_can_be_requested(world: World) -> None:
    with triton_grpc.InferenceServerClient(world.grpc) as client:
        metadata = client.get_model_metadata("renamed", as_json=True)
        assert [tensor["name"] for tensor in metadata["inputs"]] == ["left", "right"]
        assert [tensor["name"] for tensor in metadata["outputs"]] == ["sum", "OUTPUT1"]
        asked = [triton_grpc.InferRequestedOutput("sum")]
        answer = client.infer("renamed", triton_inputs(triton_grpc, ("left", "right")), outputs=asked)
    assert (answer.as_numpy("sum") == A + B).all() and answer.as_numpy("OUTPUT1") is None


def test_upstreams_get_binary_where_they_can_read_it(world: World) -> None:
    by_graphpipe(world, "oip_http", ("INPUT0", "INPUT1"))
    head, tail = world.oip_http.requests[-1]
    assert tail == A.tobytes() + B.tobytes()
    assert all("data" not in tensor for tensor in head["inputs"])
    by_graphpipe(world, "oip_http_json", ("INPUT0", "INPUT1"))
    head, tail = world.oip_http_json.requests[-1]
    assert tail == b"" and head["inputs"][0]["data"]


def test_parameters_reach_an_upstream_that_can_carry_them(world: World) -> None:
    with triton_grpc.InferenceServerClient(world.grpc) as client:
        client.infer(
            "oip_grpc",
            triton_inputs(triton_grpc, ("INPUT0", "INPUT1")),
            parameters={"tag": "blue", "level": 3, "deep": True},
        )
    sent = world.oip_grpc.requests[-1].parameters
    assert sent["tag"].string_param == "blue"
    assert sent["level"].int64_param == 3
    assert sent["deep"].bool_param is True


def test_a_graphpipe_server_gets_config_and_names(world: World) -> None:
    url = f"http://{world.http}/graphpipe/graphpipe"
    got = remote.execute_multi(url, [A, B], ["INPUT1", "INPUT0"], ["OUTPUT1"], config="some text")
    assert len(got) == 1 and (got[0] == B - A).all()
    # by its place alone an output is known, so all are asked for, in the order of the signature
    assert world.graphpipe.output_names == [b"OUTPUT0", b"OUTPUT1"]
    assert world.graphpipe.config == b"some text"
    assert sorted(world.graphpipe.input_names) == [b"INPUT0", b"INPUT1"]
    assert world.graphpipe.path == "/"


@pytest.mark.parametrize("config", ["fail", "fail in band"])
def test_errors_of_a_graphpipe_server_arrive_with_its_words(world: World, config: str) -> None:
    with (
        triton_http.InferenceServerClient(world.http) as client,
        pytest.raises(triton_http.InferenceServerException) as caught,
    ):
        client.infer(
            "graphpipe",
            triton_inputs(triton_http, ("INPUT0", "INPUT1")),
            parameters={"config": config},
        )
    assert ("the model said no" if config == "fail" else "boom") in str(caught.value)


def test_an_unknown_model_of_an_upstream_is_not_found(world: World) -> None:
    reply = requests.post(f"http://{world.http}/graphpipe/lost", data=b"\0" * 8, timeout=10)
    assert reply.status_code in (400, 404)
    reply = requests.get(f"http://{world.http}/v2/models/lost", timeout=10)
    assert reply.status_code == 404 and "nothing_like_it" in reply.json()["error"]
    assert requests.get(f"http://{world.http}/v2/models/lost/ready", timeout=10).status_code == 400


def test_an_upstream_that_is_down_is_unavailable_and_named(world: World) -> None:
    reply = requests.get(f"http://{world.http}/v2/models/down", timeout=10)
    assert reply.status_code == 503
    assert "down" in reply.json()["error"]
    assert requests.get(f"http://{world.http}/v2/models/down/ready", timeout=10).status_code == 400


def test_readiness_covers_the_required_upstream_models(world: World) -> None:
    assert requests.get(f"http://{world.http}/v2/health/ready", timeout=10).json() == {"ready": True}


def test_a_second_daemon_is_an_upstream_too(world: World, tmp_path: Path) -> None:
    config = {
        "listeners": [{"listen": f"unix:{tmp_path}/s.sock", "transport": "http", "dialects": ["graphpipe"],
                       "default_model": "over_grpc"},
                      {"listen": "127.0.0.1:0", "transport": "http"}],
        "models": {
            "over_grpc": {"upstream": "g", "remote_model": "oip_http"},
            "over_http": {"upstream": "h", "remote_model": "oip_grpc"},
            "over_graphpipe": {"upstream": "p", "remote_model": "oip_grpc"},
        },
        "upstreams": {
            "g": {"dialect": "oip", "transport": "grpc", "urls": [world.grpc]},
            "h": {"dialect": "oip", "transport": "http", "urls": [world.http]},
            "p": {"dialect": "graphpipe", "transport": "http", "urls": [world.http]},
        },
    }  # fmt: skip
    daemon = Daemon.start(tmp_path, config)
    try:
        for model in ("over_grpc", "over_http", "over_graphpipe"):
            url = f"http://{daemon.addresses[1]}/graphpipe/{model}"
            total, difference = remote.execute_multi(url, [A, B], None, None)
            assert (total == A + B).all() and (difference == A - B).all()
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_graphpipe_metadata_of_a_bridged_model(world: World) -> None:
    with urllib.request.urlopen(f"http://{world.http}/graphpipe/oip_grpc", timeout=10) as reply:
        text = reply.read().decode()
    assert '"Name": "INPUT0"' in text and '"Type": 6' in text
    told = json.loads(text)
    assert (told["Server"], told["Version"]) == ("interlingua", version("interlingua"))
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{world.http}/graphpipe/none", timeout=10)
    assert caught.value.code == 404
    caught.value.close()
