"""Routes of the real daemon, for clients of every dialect: who answers, by which names, and who answers instead."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from graphpipe import remote
from onnx import numpy_helper
from tritonclient.utils import InferenceServerException

from interlingua.schemas import Datatype
from tests.e2e.background import Background
from tests.e2e.daemon import ROOT, Daemon
from tests.runtime.onnx_models import node, value, write
from tests.standins.grps_brpc import GrpsBrpc
from tests.standins.grps_client import GrpsError, GrpsGrpc, GrpsHttp
from tests.standins.grps_contract import arrays_of, gtensors
from tests.standins.trtis_client import TrtisError
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp
from tests.waiting import eventually

ADDS = {"stable": 100, "canary": 200, "gold": 300, "away": 400}
"""What each model adds to its input, which tells who has answered."""

STATED = {
    "inputs": [{"name": "IN", "datatype": "INT32", "shape": [-1]}],
    "outputs": [{"name": "OUT", "datatype": "INT32", "shape": [-1]}],
}
SUMS = """
max_batch_size: 8
sequence_batching { state { input_name: "sum" output_name: "next" data_type: TYPE_INT32 dims: 1 }
                    max_sequence_idle_microseconds: 60000000 }
"""
TWO_VERSIONS = "version_policy { all {} }\n"


def write_adding(path: Path, number: int, datatype: Datatype = Datatype.INT32) -> None:
    constant = numpy_helper.from_array(np.array([number], datatype.dtype), "number")
    sides = value("IN", datatype, ["n"]), value("OUT", datatype, ["n"])
    write(path, [node("Add", ["IN", "number"], ["OUT"])], [sides[0]], [sides[1]], [constant])


def write_models(folder: Path) -> Path:
    for name, number in ADDS.items():
        write_adding(folder / name / "1" / "model.onnx", number)
    for version in (3, 5):
        write_adding(folder / "versions" / str(version) / "model.onnx", version)
    (folder / "versions" / "config.pbtxt").write_text(TWO_VERSIONS)
    write_adding(folder / "wide" / "1" / "model.onnx", 1, Datatype.INT64)
    tensors = {name: value(name, Datatype.INT32, ["n", 1]) for name in ("IN", "sum", "OUT", "next")}
    for name in ("sums_a", "sums_b"):
        steps = [node("Add", ["IN", "sum"], ["OUT"]), node("Identity", ["OUT"], ["next"])]
        ends = [tensors["IN"], tensors["sum"]], [tensors["OUT"], tensors["next"]]
        write(folder / name / "1" / "model.onnx", steps, *ends)
        (folder / name / "config.pbtxt").write_text(SUMS)
    return folder


ROUTES: list[dict[str, Any]] = [
    {
        "match": {"model": "alias"},
        "to": "stable",
        "rename": {"inputs": {"x": "IN"}, "outputs": {"y": "OUT"}},
        "versions": {"7": "1"},
    },
    {"match": {"model": "tiers", "parameters": {"priority_class": "gold"}}, "to": "gold"},
    {"match": {"model": "tiers", "headers": {"X-Tenant": "a*"}}, "to": "canary"},
    {"match": {"model": "tiers"}, "to": "stable"},
    {"match": {"model": "shared"}, "split": [{"to": "stable", "weight": 3}, {"to": "canary"}], "sticky": {"header": "x-user"}},
    {"match": {"model": "sums"}, "split": [{"to": "sums_a"}, {"to": "sums_b"}]},
    {"match": {"model": "pinned"}, "to": "versions", "versions": {"1": "3", "*": ""}},
    {"match": {"model": "safe"}, "to": "down", "fallback": "stable"},
    {"match": {"model": "safe_stated"}, "to": "down_stated", "fallback": "stable"},
    {"match": {"model": "doubtful"}, "to": "breaking", "fallback": "stable"},
    {"match": {"model": "unloaded"}, "to": "away", "fallback": "stable"},
    {"match": {"model": "late"}, "to": "silent", "timeout_secs": 0.3, "fallback": "stable"},
    {"match": {"model": "widened"}, "to": "wide", "datatypes": "widen"},
    {"match": {"model": "strict"}, "to": "identity_bool", "datatypes": "strict"},
    {"match": {"model": "chosen", "dialect": "trtis"}, "to": "canary"},
    {"match": {"model": "chosen", "dialect": "graphpipe"}, "to": "gold"},
    {"match": {"model": "chosen"}, "to": "stable"},
    {"match": {"model": "odd"}, "split": [{"to": "stable"}, {"to": "wide"}]},
]  # fmt: skip


@dataclass
class World:
    """The daemon's addresses, and how many connections a server has had that breaks or keeps silent."""

    http: str = ""
    grpc: str = ""
    brpc: str = ""
    admin: str = ""
    breaking: list[bytes] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("routes")
    background = Background()
    world = World()

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        world.breaking.append(await reader.read(1 << 16))
        writer.close()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def serve(handler: Any) -> tuple[asyncio.Server, int]:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()[1]

    servers = {"breaking": background.run(serve(breaking)), "silent": background.run(serve(silent))}
    ports = {"down": 1, **{name: port for name, (_, port) in servers.items()}}
    config: dict[str, Any] = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc", "brpc")],
        "admin": {"listen": "127.0.0.1:0"},
        "model_repository": [
            {
                "path": str(write_models(folder / "models")),
                "control": "explicit",
                "load": [*(set(ADDS) - {"away"}), "versions", "wide", "sums_a", "sums_b", "away"],
            },
            {"path": str(ROOT / "examples" / "models"), "load": ["identity_bool"]},
        ],
        "models": {
            "down": {"upstream": "down", "required": False},
            "down_stated": {"upstream": "down", "required": False, "signature": STATED},
            "breaking": {"upstream": "breaking", "required": False, "signature": STATED},
            "silent": {"upstream": "silent", "required": False},
        },
        "upstreams": {
            name: {
                "dialect": "oip",
                "transport": "http",
                "flavor": "triton",
                "urls": [f"127.0.0.1:{port}"],
                "probe_interval_secs": 0,
                "eject_after_failures": 1000,
            }
            for name, port in ports.items()
        },
        "routes": ROUTES,
    }  # fmt: skip
    daemon = Daemon.start(folder, config)
    world.http, world.grpc, world.brpc = daemon.addresses[:3]
    world.log = daemon.log
    world.admin = next(line["address"] for line in daemon.log if line["event"] == "admin listening")
    try:
        yield world
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()
        for server, _ in servers.values():
            background.run(closed(server))
        background.close()


async def closed(server: asyncio.Server) -> None:
    server.close()


# --- clients


GIVEN = np.array([1, 2], np.int32)


def by_triton(module: Any) -> Callable[..., Any]:
    def ask(
        world: World, model: str, array: Any = GIVEN, name: str = "IN", output: str = "OUT", **options: Any
    ) -> Any:
        with module.InferenceServerClient(world.http if module is triton_http else world.grpc) as client:
            given = module.InferInput(
                name, array.shape, {"int32": "INT32", "bool": "BOOL", "uint8": "UINT8"}[str(array.dtype)]
            )
            given.set_data_from_numpy(array)
            answer = client.infer(model, [given], **options)
            told = answer.get_response()
            assert (told["model_name"] if module is triton_http else told.model_name) == model
            return answer.as_numpy(output)

    return ask  # fmt: skip


def by_trtis(made: Any) -> Callable[..., Any]:
    def ask(world: World, model: str, array: Any = GIVEN, name: str = "IN", output: str = "OUT") -> Any:
        client = made(world.http if made is TrtisHttp else world.grpc)
        try:
            answer = client.infer(model, {name: array}, [output])
            assert answer.model_name == model
            return answer.outputs[output]
        finally:
            client.close()

    return ask


def by_grps(made: Any, transport: str) -> Callable[..., Any]:
    def ask(world: World, model: str, array: Any = GIVEN, name: str = "IN", output: str = "OUT") -> Any:
        client = made(getattr(world, transport))
        try:
            return arrays_of(client.predict(gtensors(model, **{name: array})))[output]
        finally:
            client.close()

    return ask


def by_graphpipe(world: World, model: str, array: Any = GIVEN, name: str = "IN", output: str = "OUT") -> Any:
    url = f"http://{world.http}/graphpipe/{model}"
    return remote.execute_multi(url, [array], [name], [output])[0]


CLIENTS: dict[str, Callable[..., Any]] = {
    "oip_http": by_triton(triton_http),
    "oip_grpc": by_triton(triton_grpc),
    "trtis_http": by_trtis(TrtisHttp),
    "trtis_grpc": by_trtis(TrtisGrpc),
    "graphpipe": by_graphpipe,
    "grps_http": by_grps(GrpsHttp, "http"),
    "grps_grpc": by_grps(GrpsGrpc, "grpc"),
    "grps_brpc": by_grps(GrpsBrpc, "brpc"),
}
clients = pytest.mark.parametrize("client", CLIENTS)
REFUSALS = (InferenceServerException, TrtisError, GrpsError, requests.HTTPError)


def answered_by(client: str, world: World, model: str, **options: Any) -> str:
    (number,) = set((CLIENTS[client](world, model, **options) - GIVEN).tolist())
    return {added: name for name, added in ADDS.items()}[number]


# --- who answers


@clients
def test_names_are_those_of_the_route(world: World, client: str) -> None:
    got = CLIENTS[client](world, "alias", name="x", output="y")
    assert got.tolist() == (GIVEN + 100).tolist()


@clients
def test_conditions(world: World, client: str) -> None:
    assert answered_by(client, world, "tiers") == "stable"
    dialect = client.split("_")[0]
    assert answered_by(client, world, "chosen") == {"trtis": "canary", "graphpipe": "gold"}.get(
        dialect, "stable"
    )


@pytest.mark.parametrize("client", ["oip_http", "oip_grpc"])
def test_headers_and_parameters(world: World, client: str) -> None:
    gold = {"parameters": {"priority_class": "gold"}}
    assert answered_by(client, world, "tiers", **gold) == "gold"
    assert answered_by(client, world, "tiers", headers={"x-tenant": "acme"}) == "canary"
    assert answered_by(client, world, "tiers", headers={"x-tenant": "other"}) == "stable"
    assert answered_by(client, world, "tiers", headers={"x-tenant": "acme"}, **gold) == "gold"


@clients
def test_shares(world: World, client: str) -> None:
    drawn = Counter(answered_by(client, world, "shared") for _ in range(24))
    assert drawn["stable"] == pytest.approx(18, abs=3)
    assert drawn["canary"] + drawn["stable"] == 24


@pytest.mark.parametrize("client", ["oip_http", "oip_grpc"])
def test_a_user_stays(world: World, client: str) -> None:
    homes: dict[str, str] = {}
    for user in [f"user {number}" for number in range(12)] * 2:
        home = answered_by(client, world, "shared", headers={"x-user": user})
        assert homes.setdefault(user, home) == home
    assert set(homes.values()) == {"stable", "canary"}


@pytest.mark.parametrize("module", [triton_http, triton_grpc])
def test_sequences_stay(world: World, module: Any) -> None:
    """Interleaved sequences keep their sums, and are not all at one model."""
    ids = [f"{module.__name__} {number}" for number in range(8)]
    before = executions(world)
    with module.InferenceServerClient(world.http if module is triton_http else world.grpc) as client:
        for turn in range(3):
            for number, id in enumerate(ids):
                given = module.InferInput("IN", [1, 1], "INT32")
                given.set_data_from_numpy(np.array([[number]], np.int32))
                answer = client.infer(
                    "sums", [given], sequence_id=id, sequence_start=turn == 0, sequence_end=turn == 2
                )
                assert answer.as_numpy("OUT").item() == (turn + 1) * number
    after = executions(world)
    assert {name for name in after if after[name] > before[name]} == {"sums_a", "sums_b"}


def executions(world: World) -> dict[str, int]:
    with triton_http.InferenceServerClient(world.http) as client:
        told = [client.get_inference_statistics(name)["model_stats"][0] for name in ("sums_a", "sums_b")]
    return {each["name"]: each["inference_count"] for each in told}


# --- versions, and what is told of a model


@pytest.mark.parametrize(
    ("asked", "added", "told"), [("1", 3, "1"), ("", 5, "5"), ("9", 5, "9"), ("3", 5, "3")]
)
def test_versions(world: World, asked: str, added: int, told: str) -> None:
    for module, address in ((triton_http, world.http), (triton_grpc, world.grpc)):
        with module.InferenceServerClient(address) as client:
            given = module.InferInput("IN", [2], "INT32")
            given.set_data_from_numpy(GIVEN)
            answer = client.infer("pinned", [given], model_version=asked)
            assert answer.as_numpy("OUT").tolist() == (GIVEN + added).tolist()
            said = answer.get_response()
            assert (said["model_version"] if module is triton_http else said.model_version) == told


def test_a_version_joined_to_the_name(world: World) -> None:
    assert by_grps(GrpsGrpc, "grpc")(world, "pinned-1").tolist() == (GIVEN + 3).tolist()
    trtis = TrtisGrpc(world.grpc)
    answer = trtis.infer("pinned", {"IN": GIVEN}, ["OUT"], version=1)
    assert (answer.model_version, answer.outputs["OUT"].tolist()) == (1, (GIVEN + 3).tolist())
    trtis.close()


def test_what_is_reported_of_a_name(world: World) -> None:
    with triton_http.InferenceServerClient(world.http) as client:
        metadata = client.get_model_metadata("alias")
        assert (metadata["name"], metadata["versions"]) == ("alias", ["7", "1"])
        assert [metadata["inputs"][0]["name"], metadata["outputs"][0]["name"]] == ["x", "y"]
        assert client.get_model_metadata("alias", "7")["name"] == "alias"
        config = client.get_model_config("alias")
        assert (config["name"], config["input"][0]["name"]) == ("alias", "x")
        (statistics,) = client.get_inference_statistics("alias", "7")["model_stats"]
        assert (statistics["name"], statistics["version"]) == ("alias", "7")
        assert client.get_model_metadata("pinned")["versions"] == ["1"]
        assert client.get_model_metadata("shared")["name"] == "shared"
    trtis = TrtisHttp(world.http)
    status = trtis.status("alias").model_status["alias"]
    assert (status.config.name, list(status.version_status)) == ("alias", [7])
    trtis.close()


def test_what_is_odd_about_a_route_is_logged(world: World) -> None:
    def found() -> list[tuple[int, str]]:
        return [(line["route"], line["reason"]) for line in world.log if line["event"] == "suspicious route"]

    eventually(lambda: len(found()) >= 2)
    assert found() == [
        (18, "models differ in input 'IN': 'stable' has INT32 [-1], 'wide' INT64 [-1]"),
        (18, "models differ in output 'OUT': 'stable' has INT32 [-1], 'wide' INT64 [-1]"),
    ]


def test_readiness_is_that_of_the_targets(world: World) -> None:
    with triton_grpc.InferenceServerClient(world.grpc) as client:
        ready = {
            name: client.is_model_ready(name) for name in ("alias", "shared", "safe", "down", "unloaded")
        }
        assert ready == {"alias": True, "shared": True, "safe": True, "down": False, "unloaded": True}
        assert client.is_model_ready("pinned", "1")


def test_loads_go_where_the_name_leads(world: World) -> None:
    with triton_http.InferenceServerClient(world.http) as client:
        with pytest.raises(
            InferenceServerException, match="splits requests for model 'shared' among 'stable'"
        ):
            client.unload_model("shared")
        assert answered_by("oip_http", world, "unloaded") == "away"
        client.unload_model("unloaded")
        assert not client.is_model_ready("away")
        assert answered_by("oip_grpc", world, "unloaded") == "stable"
        client.load_model("unloaded")
        assert answered_by("oip_http", world, "unloaded") == "away"


# --- who answers instead


@clients
@pytest.mark.parametrize("model", ["safe", "safe_stated"])
def test_the_fallback_answers_for_what_cannot_be_reached(world: World, client: str, model: str) -> None:
    assert answered_by(client, world, model) == "stable"


@clients
def test_what_may_have_run_is_sent_to_no_other_server(world: World, client: str) -> None:
    before = len([sent for sent in world.breaking if sent.startswith(b"POST")])
    with pytest.raises(REFUSALS):
        CLIENTS[client](world, "doubtful")
    assert len([sent for sent in world.breaking if sent.startswith(b"POST")]) == before + 1
    assert fallbacks(world)["doubtful"] == 0


@clients
def test_a_route_has_a_deadline_of_its_own(world: World, client: str) -> None:
    with pytest.raises(REFUSALS, match=r"(?i)deadline|did not answer|504"):
        CLIENTS[client](world, "late")


def fallbacks(world: World) -> dict[str, int]:
    with urllib.request.urlopen(f"http://{world.admin}/routes", timeout=10) as reply:
        told = json.load(reply)
    return {each["match"]["model"]: each["fallbacks"] for each in told if each["fallback"]}


def test_operators_see_the_counts(world: World) -> None:
    before = fallbacks(world)["safe"]
    assert answered_by("oip_http", world, "safe") == "stable"
    assert fallbacks(world)["safe"] == before + 1
    with urllib.request.urlopen(f"http://{world.admin}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    assert f'interlingua_route_fallbacks_total{{route="8",model="safe",to="stable"}} {before + 1}' in lines


# --- datatypes


@pytest.mark.parametrize("client", [name for name in CLIENTS if not name.startswith("trtis")])
def test_inputs_are_widened(world: World, client: str) -> None:
    """Version 1 says nothing of datatypes: there, bytes are what the model takes."""
    got = CLIENTS[client](world, "widened")
    assert (got.dtype, got.tolist()) == (np.int64, [2, 3])


@clients
def test_a_strict_route_refuses_what_would_change(world: World, client: str) -> None:
    flags = np.array([True, False])
    if client.startswith(("oip", "trtis")):
        assert CLIENTS[client](world, "strict", flags, "INPUT0", "OUTPUT0").tolist() == [True, False]
        return
    # GraphPipe's client tells the status alone
    said = "422" if client == "graphpipe" else "input 'INPUT0' of datatype BOOL would travel .* as UINT8"
    with pytest.raises(REFUSALS, match=said):
        CLIENTS[client](world, "strict", flags.astype(np.uint8), "INPUT0", "OUTPUT0")
