"""Version 1 clients before servers of other dialects, clients of other dialects before version 1 servers.

The daemon of the ``v1`` fixture is asked directly, and as an upstream over every wire that it has: the
answers must be the same. The stand-ins import nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from graphpipe import remote

from tests.e2e.background import Background
from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of, refused
from tests.e2e.trtis_models import DATATYPES, LABELS
from tests.standins import graphpipe_server, oip_grpc_server, oip_http_server, trtis_server
from tests.standins.trtis_client import Top
from tests.standins.trtis_contract import NUMPY, from_line

MODELS = ("simple", "simple_string", "classy", *(f"identity_{name}" for name in DATATYPES))
WIRES = ("trtis_http", "trtis_grpc", "oip_http", "oip_grpc")
A = np.arange(32, dtype=np.int32).reshape(2, 16)
B = np.full((2, 16), 3, dtype=np.int32)
SUMS = {"INPUT0": A, "INPUT1": B}
BOTH = ["OUTPUT0", "OUTPUT1"]
ROWS = np.array([[1, 5, 2, 4, 3], [5, 4, 3, 2, 5]], np.float32)


@dataclass
class World:
    """The bridge with its clients, the daemon behind it, and what the version 1 stand-ins saw."""

    bridge: Daemon
    clients: dict[str, Any]
    local: dict[str, Any]
    seen: dict[str, trtis_server.Seen]


def tensors(names: list[str], datatype: str, size: int) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": datatype, "shape": [-1, size]} for name in names]


INPUTS = ["INPUT0", "INPUT1"]
CLASSY = {
    "inputs": tensors(["DATA"], "FP32", 5),
    "outputs": tensors(["PROB"], "FP32", 5),
    "max_batch_size": 4,
}
DECLARED: dict[str, dict[str, Any]] = {
    "simple": {"inputs": tensors(INPUTS, "INT32", 16), "outputs": tensors(BOTH, "INT32", 16), "max_batch_size": 8},
    "simple_string": {
        "inputs": tensors(INPUTS, "BYTES", 16), "outputs": tensors(BOTH, "BYTES", 16), "max_batch_size": 8
    },
    "classy": CLASSY,
}  # fmt: skip
"""For upstreams whose metadata leave out the batch, as the Open Inference Protocol's do."""


def upstream_model(model: str, upstream: str) -> dict[str, Any]:
    declared = DECLARED.get(model) if upstream.startswith("oip") else None
    return {"upstream": upstream, "remote_model": model, **({"signature": declared} if declared else {})}


@pytest.fixture(scope="module")
def world(v1: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    background = Background()
    seen = {"http": trtis_server.Seen(), "grpc": trtis_server.Seen()}
    application = trtis_server.trtis_http_server(trtis_server.TrtisServer(seen["http"]))
    old_grpc, old_port = background.run(trtis_server.start_grpc(trtis_server.TrtisServer(seen["grpc"])))
    new_grpc, new_port = background.run(oip_grpc_server.start(oip_grpc_server.Seen()))
    sides = (["INPUT0", "INPUT1"], ["OUTPUT0", "OUTPUT1"])
    pipe = graphpipe_server.graphpipe_server(graphpipe_server.Seen(), sides, "int32")
    urls = {
        **{wire: v1.addresses[wire.endswith("grpc")] for wire in WIRES},
        "old_trtis_http": background.serve(application),
        "old_trtis_grpc": f"127.0.0.1:{old_port}",
        "new_oip_http": background.serve(
            oip_http_server.oip_http_server(oip_http_server.Seen(), configured=True)
        ),
        "plain_oip_http": background.serve(oip_http_server.oip_http_server(oip_http_server.Seen())),
        "new_oip_grpc": f"127.0.0.1:{new_port}",
        "pipe_graphpipe_http": background.serve(pipe),
        "down_trtis_http": "127.0.0.1:1",
    }
    models: dict[str, Any] = {
        f"{model}.{upstream}": upstream_model(model, upstream)
        for upstream in (*WIRES, "old_trtis_http", "old_trtis_grpc")
        for model in MODELS
    }
    labelled = {**CLASSY, "labels": {"PROB": list(LABELS)}}
    for wire in WIRES:
        models[f"labelled.{wire}"] = {"upstream": wire, "remote_model": "classy", "signature": labelled}
    for upstream in ("new_oip_http", "plain_oip_http", "new_oip_grpc"):
        models[f"simple.{upstream}"] = {"upstream": upstream, "remote_model": "simple"}
    models["simple.pipe"] = {"upstream": "pipe_graphpipe_http", "signature": DECLARED["simple"]}
    optional = {"required": False}
    models["lost"] = {"upstream": "old_trtis_http", "remote_model": "nothing_like_it", **optional}
    models["down"] = {"upstream": "down_trtis_http", "remote_model": "simple", **optional}
    bridge = Daemon.start(
        tmp_path_factory.mktemp("bridge"),
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc")],
            "models": models,
            "upstreams": {
                name: {
                    "dialect": name.split("_")[-2],
                    "transport": name.split("_")[-1],
                    "urls": [url],
                }
                for name, url in urls.items()
            },
        },
    )  # fmt: skip
    try:
        with clients_of(bridge) as clients, clients_of(v1) as local:
            yield World(bridge, clients, local, seen)
        assert bridge.stop() == 0
        assert not [line for line in bridge.log if "unexpected error" in line["event"]], bridge.log
    finally:
        bridge.kill()
        background.run(old_grpc.stop(None))
        background.run(new_grpc.stop(None))
        background.close()


@pytest.fixture(params=["http", "grpc"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sample(model: str) -> tuple[dict[str, Any], list[str]]:
    """A question to a model of version 1."""
    if model == "simple":
        return SUMS, BOTH
    if model == "simple_string":
        return {
            name: np.vectorize(lambda n: str(n).encode(), otypes=[object])(a) for name, a in SUMS.items()
        }, BOTH
    if model == "classy":
        return {"DATA": ROWS}, ["PROB"]
    name = model.removeprefix("identity_")
    if name == "bytes":
        return {"INPUT0": np.array([b"abc", b"", b"\xff\xfe\x00r"], object)}, ["OUTPUT0"]
    values = [0, 1, 1] if name == "bool" else [0, 1, 100]
    return {"INPUT0": np.array(values, NUMPY[f"TYPE_{DATATYPES[name]}"])}, ["OUTPUT0"]


def listed(outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in outputs.items()
    }


# ---- version 1 clients


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("model", MODELS)
def test_the_answer_is_the_one_that_the_server_itself_gives(
    world: World, transport: str, model: str, wire: str
) -> None:
    there, here = world.local[transport].context(model), world.clients[transport].context(f"{model}.{wire}")
    assert here.config.max_batch_size == there.config.max_batch_size
    for ours, theirs in ((here.config.input, there.config.input), (here.config.output, there.config.output)):
        assert [(spec.name, spec.data_type, spec.dims) for spec in ours] == [
            (spec.name, spec.data_type, spec.dims) for spec in theirs
        ]
    inputs, outputs = sample(model)
    got, wanted = here.infer(inputs, outputs, id=9), there.infer(inputs, outputs, id=9)
    assert listed(got.outputs) == listed(wanted.outputs)
    assert (got.model_name, got.model_version) == (f"{model}.{wire}", wanted.model_version)
    assert (got.batch_size, got.id) == (wanted.batch_size, 9)
    assert got.server_id == "inference:0"


@pytest.mark.parametrize("wire", WIRES)
def test_classes_are_ranked_here(world: World, transport: str, wire: str) -> None:
    """An upstream tells numbers with six decimals or no labels; the raw output is fetched and ranked."""
    wanted = world.local[transport].infer("classy", {"DATA": ROWS / 3}, {"PROB": Top(3)}).outputs
    got = world.clients[transport].infer(f"labelled.{wire}", {"DATA": ROWS / 3}, {"PROB": Top(3)}).outputs
    assert got == wanted and wanted["PROB"][1][0] == (0, float(np.float32(5) / np.float32(3)), "ant")
    got = world.clients[transport].infer(f"classy.{wire}", {"DATA": ROWS / 3}, {"PROB": Top(3)}).outputs
    assert [[entry[:2] for entry in row] for row in got["PROB"]] == [
        [entry[:2] for entry in row] for row in wanted["PROB"]
    ]


@pytest.mark.parametrize("wire", ["old_trtis_http", "old_trtis_grpc"])
@pytest.mark.parametrize("model", MODELS)
def test_a_version_1_server_of_others(world: World, transport: str, model: str, wire: str) -> None:
    inputs, outputs = sample(model)
    answer = world.clients[transport].infer(f"{model}.{wire}", inputs, outputs)
    wanted = world.local[transport].infer(model, inputs, outputs)
    assert listed(answer.outputs) == listed(wanted.outputs)
    assert answer.model_version == trtis_server.VERSION
    again = world.clients[transport].infer(f"{model}.{wire}", inputs, outputs, version=trtis_server.VERSION)
    assert listed(again.outputs) == listed(wanted.outputs)


@pytest.mark.parametrize("wire", ["new_oip_http", "new_oip_grpc"])
def test_a_server_that_tells_its_batches_in_a_configuration(world: World, transport: str, wire: str) -> None:
    context = world.clients[transport].context(f"simple.{wire}")
    assert (context.config.max_batch_size, list(context.config.input[0].dims)) == (8, [16])
    answer = context.infer(SUMS, {"OUTPUT0": None, "OUTPUT1": Top(1)})
    assert (answer.outputs["OUTPUT0"] == A + B).all() and answer.batch_size == 2
    assert answer.outputs["OUTPUT1"] == [[(15, 12.0, "")], [(15, 28.0, "")]]


def test_a_server_that_does_not_tell_its_batches(world: World, transport: str) -> None:
    """Its batch dimension is a dimension like any other then."""
    context = world.clients[transport].context("simple.plain_oip_http")
    assert (context.config.max_batch_size, list(context.config.input[0].dims)) == (0, [-1, 16])
    answer = context.infer(SUMS, BOTH)
    assert (answer.outputs["OUTPUT0"] == A + B).all() and (answer.outputs["OUTPUT1"] == A - B).all()
    assert answer.batch_size == 1


def test_a_graphpipe_server(world: World, transport: str) -> None:
    answer = world.clients[transport].infer("simple.pipe", SUMS, ["OUTPUT1", "OUTPUT0"])
    assert (answer.outputs["OUTPUT0"] == A + B).all() and (answer.outputs["OUTPUT1"] == A - B).all()
    assert answer.batch_size == 2
    status = world.clients[transport].status("simple.pipe").model_status["simple.pipe"]
    assert list(status.version_status) == [answer.model_version]  # GraphPipe has none


def test_an_unknown_version_is_the_upstreams_to_refuse(world: World, transport: str) -> None:
    for wire in ("trtis_http", "trtis_grpc", "oip_http", "oip_grpc"):
        with refused("UNAVAILABLE", ""):
            world.clients[transport].infer(f"simple.{wire}", SUMS, BOTH, version=9)


def test_an_upstream_that_is_down_is_unavailable(world: World, transport: str) -> None:
    context = world.clients[transport].context("simple.trtis_http")
    context.model = "down"
    with refused("UNAVAILABLE", "upstream 'down_trtis_http'"):
        context.infer(SUMS, BOTH)


# ---- version 1 servers


def triton_inputs(module: Any, inputs: dict[str, Any]) -> list[Any]:
    given = []
    for name, array in inputs.items():
        datatype = "BYTES" if array.dtype == object else triton_http.np_to_triton_dtype(array.dtype)
        given.append(module.InferInput(name, array.shape, datatype))
        given[-1].set_data_from_numpy(array)
    return given


def by_triton(world: World, transport: str, model: str, inputs: dict[str, Any], **options: Any) -> Any:
    module, address = (triton_http, 0) if transport == "http" else (triton_grpc, 1)
    with module.InferenceServerClient(world.bridge.addresses[address]) as client:
        return client.infer(model, triton_inputs(module, inputs), **options)


@pytest.mark.parametrize("wire", ["trtis_http", "trtis_grpc", "old_trtis_http", "old_trtis_grpc"])
@pytest.mark.parametrize("model", MODELS)
def test_tritonclient(world: World, transport: str, model: str, wire: str) -> None:
    inputs, outputs = sample(model)
    answer = by_triton(world, transport, f"{model}.{wire}", inputs, request_id="seven")
    wanted = world.local[transport].infer(model, inputs, outputs).outputs
    for name in outputs:
        assert answer.as_numpy(name).tolist() == wanted[name].tolist()
        assert answer.as_numpy(name).dtype == wanted[name].dtype
    said = answer.get_response()
    assert (said["id"] if transport == "http" else said.id) == "seven"


@pytest.mark.parametrize("wire", ["trtis_http", "old_trtis_grpc"])
def test_graphpipe(world: World, wire: str) -> None:
    url = f"http://{world.bridge.addresses[0]}/graphpipe/"
    total, difference = remote.execute_multi(f"{url}simple.{wire}", [A, B], None, None)
    assert (total == A + B).all() and (difference == A - B).all()
    [difference] = remote.execute_multi(f"{url}simple.{wire}", [B, A], ["INPUT1", "INPUT0"], ["OUTPUT1"])
    assert (difference == A - B).all()
    text = remote.execute(f"{url}identity_bytes.{wire}", np.array([b"ab", b""], object))
    assert text.tolist() == [b"ab", b""]


@pytest.mark.parametrize("wire", ["old_trtis_http", "old_trtis_grpc"])
def test_what_a_version_1_server_is_sent(world: World, wire: str) -> None:
    seen = world.seen[wire.removeprefix("old_trtis_")]
    by_triton(world, "http", f"simple.{wire}", SUMS, request_id="42", priority=3, timeout=7)
    name, version, header, raws = seen.inferences[-1]
    assert (name, version, header.batch_size) == ("simple", -1, 2)
    assert [(entry.name, list(entry.dims)) for entry in header.input] == [("INPUT0", [16]), ("INPUT1", [16])]
    # version 1 answers with nothing that is not asked for
    assert [entry.name for entry in header.output] == BOTH
    assert raws == [A.tobytes(), B.tobytes()]
    assert (header.id, header.priority, header.timeout_microseconds) == (42, 3, 7)
    by_triton(world, "http", f"simple.{wire}", SUMS, sequence_id=5, sequence_start=True, model_version="3")
    _, version, header, _ = seen.inferences[-1]
    assert (version, header.correlation_id, header.flags) == (3, 5, 1)
    by_triton(world, "grpc", f"simple_string.{wire}", sample("simple_string")[0])
    _, _, header, raws = seen.inferences[-1]
    assert [entry.batch_byte_size for entry in header.input] == [len(raw) for raw in raws]


def test_http_requests_are_those_of_the_original_client(world: World) -> None:
    by_triton(world, "grpc", "simple.old_trtis_http", SUMS, model_version="3")
    request = world.seen["http"].http[-1]
    assert request.path_qs == "/api/infer/simple/3?format=binary"
    assert request.headers["Content-Type"] == "application/octet-stream"
    assert int(request.headers["Content-Length"]) == 2 * A.nbytes
    header = from_line("InferRequestHeader", request.headers["NV-InferRequest"])
    assert not any(entry.batch_byte_size for entry in header.input)


@pytest.mark.parametrize("wire", ["old_trtis_http", "old_trtis_grpc"])
def test_words_of_a_version_1_server_arrive(world: World, transport: str, wire: str) -> None:
    module = triton_http if transport == "http" else triton_grpc
    with pytest.raises(module.InferenceServerException, match="version 9 is not found"):
        by_triton(world, transport, f"simple.{wire}", SUMS, model_version="9")
    words = {"INPUT0": np.full((1, 16), b"none", object), "INPUT1": np.full((1, 16), b"1", object)}
    with pytest.raises(module.InferenceServerException, match="the model said no"):
        by_triton(world, transport, f"simple_string.{wire}", words)


def test_bf16_has_no_form_in_version_1(world: World) -> None:
    reply = requests.post(
        f"http://{world.bridge.addresses[0]}/v2/models/identity_fp32.old_trtis_http/infer",
        json={"inputs": [{"name": "INPUT0", "datatype": "BF16", "shape": [1], "data": [1]}]},
        timeout=10,
    )
    assert reply.status_code in (400, 422) and "BF16" in reply.json()["error"]


def test_readiness_and_metadata_of_a_version_1_server(world: World) -> None:
    with triton_http.InferenceServerClient(world.bridge.addresses[0]) as client:
        assert client.is_server_ready()
        for wire in ("old_trtis_http", "old_trtis_grpc", "trtis_http", "trtis_grpc"):
            assert client.is_model_ready(f"simple.{wire}")
            metadata = client.get_model_metadata(f"simple.{wire}")
            assert [tensor["shape"] for tensor in metadata["inputs"]] == [[-1, 16], [-1, 16]]
            assert metadata["versions"] == (["3"] if wire.startswith("old") else ["1"])
        assert client.is_model_ready("simple.old_trtis_http", "3")
        assert not client.is_model_ready("simple.old_trtis_http", "4")
        assert not client.is_model_ready("lost") and not client.is_model_ready("down")


def test_megabytes(world: World, transport: str) -> None:
    given = np.random.default_rng(7).random(2_000_000, dtype=np.float32)
    for wire in WIRES:
        answer = world.clients[transport].infer(f"identity_fp32.{wire}", {"INPUT0": given}, ["OUTPUT0"])
        assert answer.outputs["OUTPUT0"].tobytes() == given.tobytes()
