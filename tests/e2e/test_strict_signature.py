"""Requests that do not fit their model: refused alike whether it runs here or behind an upstream of any dialect,
and without a word to the upstream.

What the servers behind would say otherwise: grps and GraphPipe servers answer 500 or close the connection, others
answer under a wrong name, so that no caller could tell that the fault was its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from graphpipe import convert
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.e2e.background import Background
from tests.e2e.daemon import ROOT, Daemon
from tests.standins import graphpipe_server, grps_server, oip_grpc_server, oip_http_server, trtis_server
from tests.standins.grps_contract import GrpsMessage, tensor, to_json
from tests.standins.grps_http_server import grps_http_server
from tests.standins.trtis_contract import code_name, from_line, message, one_line, pack

LOCAL = "simple"
SIGNATURE: dict[str, Any] = {
    "max_batch_size": 8,
    **{
        side: [{"name": f"{prefix}{n}", "datatype": "INT32", "shape": [-1, 16]} for n in (0, 1)]
        for side, prefix in (("inputs", "INPUT"), ("outputs", "OUTPUT"))
    },
}
UPSTREAMS = ("oip_http", "oip_grpc", "trtis_http", "graphpipe_http", "grps_http")
DECLARED = ("graphpipe_http", "grps_http")
"""Of those that cannot tell how large a batch may be, or what the model takes at all."""


@dataclass(frozen=True)
class Request:
    """What is asked, whatever the dialect: the arrays by name, in order, and the outputs."""

    inputs: tuple[tuple[str, Any], ...]
    outputs: tuple[str, ...] = ()


def rows(count: int = 1, width: int = 16, dtype: Any = np.int32) -> Any:
    return np.ones((count, width), dtype)


GOOD = Request((("INPUT0", rows()), ("INPUT1", rows())))
MISTAKES = {
    "missing": replace(GOOD, inputs=GOOD.inputs[:1]),
    "unknown": replace(GOOD, inputs=(("INPUT0", rows()), ("INPUT7", rows()))),
    "doubled": replace(GOOD, inputs=(*GOOD.inputs, ("INPUT0", rows()))),
    "datatype": replace(GOOD, inputs=(("INPUT0", rows()), ("INPUT1", rows(dtype=np.float32)))),
    "shape": replace(GOOD, inputs=(("INPUT0", rows()), ("INPUT1", rows(width=17)))),
    "batch": replace(GOOD, inputs=(("INPUT0", rows(9)), ("INPUT1", rows(9)))),
    "output": replace(GOOD, outputs=("OUTPUT7",)),
}
UNSAYABLE = {
    "trtis_http": {"datatype"},
    "graphpipe_http": {"doubled"},  # where the last of one name counts, as at the original
    "grps_http": {"output"},
}
"""What a caller's dialect has no form for."""


@dataclass
class World:
    """The daemon, and how many requests for inference each upstream has seen."""

    http: str
    grpc: str
    seen: dict[str, Callable[[], int]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    background = Background()
    seen: dict[str, Callable[[], int]] = {}
    urls: dict[str, str] = {}

    over_http = oip_http_server.Seen()
    urls["oip_http"] = background.serve(oip_http_server.oip_http_server(over_http, configured=True))
    seen["oip_http"] = lambda: len(over_http.requests)

    over_grpc = oip_grpc_server.Seen()
    server, port = background.run(oip_grpc_server.start(over_grpc))
    urls["oip_grpc"] = f"127.0.0.1:{port}"
    seen["oip_grpc"] = lambda: len(over_grpc.requests)

    version_1 = trtis_server.Seen()
    urls["trtis_http"] = background.serve(trtis_server.trtis_http_server(trtis_server.TrtisServer(version_1)))
    seen["trtis_http"] = lambda: len(version_1.http)

    pipe = graphpipe_server.Seen()
    names = (["INPUT0", "INPUT1"], ["OUTPUT0", "OUTPUT1"])
    urls["graphpipe_http"] = background.serve(graphpipe_server.graphpipe_server(pipe, names, "int32"))
    seen["graphpipe_http"] = lambda: int(bool(pipe.path))

    rpc = grps_server.GrpsServer()
    urls["grps_http"] = background.serve(grps_http_server(rpc))
    seen["grps_http"] = lambda: len(rpc.seen)

    daemon = Daemon.start(tmp_path_factory.mktemp("strict"), configuration(urls))
    try:
        yield World(daemon.addresses[0], daemon.addresses[1], seen)
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()
        background.run(server.stop(None))
        background.close()


def configuration(urls: dict[str, str]) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for name in urls:
        models[name] = {"upstream": name, "remote_model": "simple"}
    models["graphpipe_http"] = {"upstream": "graphpipe_http"}
    models["grps_http"]["remote_model"] = "simple-1.0.0"
    for name in DECLARED:
        models[name]["signature"] = SIGNATURE
    models["graphpipe_told"] = {"upstream": "graphpipe_http", "remote_model": ""}
    models["lenient"] = {"upstream": "oip_http", "remote_model": "simple", "strict_signature": False}
    return {
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
        ],
        "model_repository": [{"path": str(ROOT / "examples" / "models"), "load": [LOCAL]}],
        "upstreams": {
            name: dict(zip(("dialect", "transport"), name.split("_"), strict=True), urls=[url])
            for name, url in urls.items()
        },
        "models": models,
    }


# --- callers: the status that says whose fault it is, and the words


def oip_http(world: World, model: str, asked: Request) -> tuple[Any, str]:
    inputs = [
        {
            "name": name,
            "datatype": "INT32" if array.dtype == np.int32 else "FP32",
            "shape": array.shape,
            "data": array.tolist(),
        }
        for name, array in asked.inputs
    ]
    body: dict[str, Any] = {"inputs": inputs}
    if asked.outputs:
        body["outputs"] = [{"name": name} for name in asked.outputs]
    reply = requests.post(f"http://{world.http}/v2/models/{model}/infer", json=body, timeout=20)
    return reply.status_code, reply.json().get("error", "")


def oip_grpc(world: World, model: str, asked: Request) -> tuple[Any, str]:
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in asked.inputs:
        request.inputs.add(
            name=name, datatype="INT32" if array.dtype == np.int32 else "FP32", shape=array.shape
        )
        request.raw_input_contents.append(array.tobytes())
    for name in asked.outputs:
        request.outputs.add(name=name)
    with grpc.insecure_channel(world.grpc) as channel:
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=20)
        except grpc.RpcError as error:
            return error.code().name, error.details()
    return "OK", ""


def trtis_http(world: World, model: str, asked: Request) -> tuple[Any, str]:
    header = message("InferRequestHeader", batch_size=asked.inputs[0][1].shape[0])
    for name, array in asked.inputs:
        header.input.add(name=name, dims=array.shape[1:])
    for name in asked.outputs or ("OUTPUT0", "OUTPUT1"):
        header.output.add(name=name)
    reply = requests.post(
        f"http://{world.http}/api/infer/{model}",
        data=b"".join(pack(array) for _, array in asked.inputs),
        headers={"NV-InferRequest": one_line(header)},
        timeout=20,
    )
    status = from_line("RequestStatus", reply.headers["NV-Status"])
    return (reply.status_code, code_name(status)), status.msg


def graphpipe_http(world: World, model: str, asked: Request) -> tuple[Any, str]:
    names, arrays = [name for name, _ in asked.inputs], [array for _, array in asked.inputs]
    body = convert.serialize_infer_request(convert.InferReq("", arrays, names, list(asked.outputs)))
    reply = requests.post(f"http://{world.http}/graphpipe/{model}", data=bytes(body), timeout=20)
    return reply.status_code, "" if reply.ok else reply.text


def grps_http(world: World, model: str, asked: Request) -> tuple[Any, str]:
    question = GrpsMessage(model=model)
    question.gtensors.tensors.extend(tensor(name, array) for name, array in asked.inputs)
    reply = requests.post(
        f"http://{world.http}/grps/v1/infer/predict",
        data=to_json(question, "py"),
        headers={"Content-Type": "application/json"},
        timeout=20,
    )
    status = json.loads(reply.content)["status"]
    return (reply.status_code, status["code"]), status["msg"]


CALLERS = {each.__name__: each for each in (oip_http, oip_grpc, trtis_http, graphpipe_http, grps_http)}
FAULT_OF_THE_CALLER = {
    "oip_http": 400,
    "oip_grpc": "INVALID_ARGUMENT",
    "trtis_http": (400, "INVALID_ARG"),
    "graphpipe_http": 400,
    "grps_http": (500, 500),  # all that the original says of a converter that refuses its input
}
CASES = [
    (caller, upstream, mistake)
    for caller in CALLERS
    for upstream in UPSTREAMS
    for mistake in MISTAKES
    if mistake not in UNSAYABLE.get(caller, ())
]


@pytest.mark.parametrize(("caller", "upstream", "mistake"), CASES)
def test_what_does_not_fit_is_refused_as_by_a_model_here(
    world: World, caller: str, upstream: str, mistake: str
) -> None:
    ask = CALLERS[caller]
    before = world.seen[upstream]()
    here, words = ask(world, LOCAL, MISTAKES[mistake])
    assert here == FAULT_OF_THE_CALLER[caller]
    code, told = ask(world, upstream, MISTAKES[mistake])
    assert (code, told) == (here, words.replace(f"'{LOCAL}'", f"'{upstream}'"))
    assert world.seen[upstream]() == before, "the upstream was asked"


@pytest.mark.parametrize("mistake", ["missing", "unknown", "datatype", "shape", "output"])
def test_what_a_graphpipe_server_tells_of_its_model_is_enough(world: World, mistake: str) -> None:
    before = world.seen["graphpipe_http"]()
    code, told = oip_http(world, "graphpipe_told", MISTAKES[mistake])
    assert code == 400 and "'graphpipe_told'" in told
    assert world.seen["graphpipe_http"]() == before


def test_the_upstream_judges_where_its_metadata_are_not_believed(world: World) -> None:
    before = world.seen["oip_http"]()
    code, _ = oip_http(world, "lenient", MISTAKES["shape"])
    assert code != 400
    assert world.seen["oip_http"]() == before + 1


@pytest.mark.parametrize(
    ("caller", "upstream"), [*product(CALLERS, UPSTREAMS), ("oip_http", "graphpipe_told")]
)
def test_what_fits_is_answered(world: World, caller: str, upstream: str) -> None:
    code, told = CALLERS[caller](world, upstream, GOOD)
    assert not told or told == "OK", (code, told)
