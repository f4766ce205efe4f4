"""Clients of grps before servers of every dialect, clients of every dialect before grps servers.

One daemon has the models; another one leads to it over each of its wires, and to the stand-ins. The answers must
be those that the first gives itself. The stand-ins, clients and servers, import nothing of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from graphpipe import remote
from tritonclient.utils import InferenceServerException

from tests.e2e.daemon import Daemon
from tests.e2e.grps_clients import TRANSPORTS, clients_of, daemon, examples
from tests.e2e.grps_standins import STANDINS, served_standins
from tests.standins.grps_client import GrpsError
from tests.standins.grps_contract import GrpsMessage, arrays_of, gtensors
from tests.standins.grps_server import ALL, GrpsServer
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp
from tests.waiting import eventually

DATATYPES: dict[str, Any] = {
    "bool": np.array([True, False, True]),
    "uint8": np.array([0, 1, 255], np.uint8),
    "uint16": np.array([0, 1, 65535], np.uint16),
    "uint32": np.array([0, 1, 2**32 - 1], np.uint32),
    "uint64": np.array([0, 1, 2**64 - 1], np.uint64),
    "int8": np.array([-128, 0, 127], np.int8),
    "int16": np.array([-32768, 0, 32767], np.int16),
    "int32": np.array([-(2**31), 0, 2**31 - 1], np.int32),
    "int64": np.array([-(2**63), 2**53 + 1, 2**63 - 1], np.int64),
    "fp16": np.array([0.1, -0.0, 65504, 6e-8], np.float16),
    "bf16": np.array([0.1, -0.0, 3e38], ml_dtypes.bfloat16),
    "fp32": np.array([0.1, -0.0, 3.4e38, 1e-45], np.float32),
    "fp64": np.array([0.1, -0.0, 1.7e308, 5e-324]),
    "bytes": np.array([b"abc", b"", "你好\0x".encode()], object),
}
"""A sample of each datatype, by the name of its identity model."""
WIDER: dict[str, Any] = {"bool": np.uint8, "uint16": np.int32, "uint32": np.int64, "bf16": np.float32}
"""What grps carries in a wider type."""
REFUSED = ("uint64",)
NOT_IN = {"trtis": ("bf16",), "graphpipe": ("bool", "bf16")}
IDENTITIES = {name: f"identity_{name}" for name in DATATYPES}

GRPS_WIRES = tuple(f"grps_{transport}" for transport in TRANSPORTS)
WIRES = (*GRPS_WIRES, "oip_http", "oip_grpc", "trtis_http", "trtis_grpc", "graphpipe_http")

A = np.arange(32, dtype=np.int32).reshape(2, 16)
B = np.full((2, 16), 3, np.int32)


def tensors(names: str, datatype: str, shape: list[int]) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": datatype, "shape": shape} for name in names.split()]


def declared(model: str) -> dict[str, Any]:
    """The signature of a model, as an operator states it."""
    if model == "simple":
        sides = ("INPUT0 INPUT1", "OUTPUT0 OUTPUT1")
        inputs, outputs = (tensors(names, "INT32", [-1, 16]) for names in sides)
        return {"inputs": inputs, "outputs": outputs, "max_batch_size": 8}
    datatype = model.removeprefix("identity_").upper()
    return {"inputs": tensors("INPUT0", datatype, [-1]), "outputs": tensors("OUTPUT0", datatype, [-1])}


@dataclass
class World:
    """The daemon with the models and the one that leads to it, with a grps client per transport of each."""

    inner: Daemon
    bridge: Daemon
    local: dict[str, Any]
    clients: dict[str, Any]
    standins: dict[str, GrpsServer] = field(default_factory=dict)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with served_standins() as (standins, urls):
        repository = examples("simple", "words", *IDENTITIES.values())
        with daemon(tmp_path_factory.mktemp("inner"), {"model_repository": repository}) as inner:
            for wire in WIRES:
                urls[wire] = inner.addresses[TRANSPORTS.index(wire.split("_")[1])]
            words = {"inputs": tensors("TEXT", "BYTES", [1]), "outputs": tensors("WORD", "BYTES", [1])}
            models: dict[str, Any] = {
                f"words.{wire}": {"upstream": wire, "remote_model": "words", "signature": words}
                for wire in ("grps_grpc", "grps_http")
            }
            for wire in WIRES:
                dialect = wire.split("_")[0]
                for model in ("simple", *IDENTITIES.values()):
                    if model.removeprefix("identity_") in NOT_IN.get(dialect, ()):
                        continue
                    stated = {} if dialect == "trtis" else {"signature": declared(model)}
                    models[f"{model}.{wire}"] = {"upstream": wire, "remote_model": model, **stated}
            for wire in STANDINS:
                simple = {"upstream": wire, "signature": declared("simple")}
                models[f"simple.{wire}"] = {**simple, "remote_model": "simple-1.0.0"}
                models[f"plain.{wire}"] = {"upstream": wire, "remote_model": ""}
            upstreams = {
                name: {"dialect": name.split("_")[-2], "transport": name.split("_")[-1], "urls": [url]}
                for name, url in urls.items()
            }
            config = {"models": models, "upstreams": upstreams, "default_model": "plain.py_grps_grpc"}
            with (
                daemon(tmp_path_factory.mktemp("bridge"), config) as bridge,
                clients_of(inner) as local,
                clients_of(bridge) as clients,
            ):
                yield World(inner, bridge, local, clients, standins)


def on_the_wire(name: str) -> Any:
    """The sample of a datatype as a grps client has it."""
    array = DATATYPES[name]
    return array.astype(WIDER[name]) if name in WIDER else array


def same(got: Any, wanted: Any) -> bool:
    """Whether two arrays are the same to the bit; strings may be text or UTF-8."""
    if got.dtype.kind in "OS":
        sides = [[s if isinstance(s, bytes) else s.encode() for s in each.ravel()] for each in (got, wanted)]
        return sides[0] == sides[1] and got.shape == wanted.shape
    return got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()


# ---- grps clients


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_answer_is_the_one_that_the_server_itself_gives(world: World, transport: str, wire: str) -> None:
    dialect = wire.split("_")[0]
    for name, model in IDENTITIES.items():
        if name in REFUSED or name in NOT_IN.get(dialect, ()):
            continue
        given = on_the_wire(name)
        wanted = arrays_of(world.local[transport].predict(gtensors(model, INPUT0=given)))
        assert same(wanted["OUTPUT0"], given), name
        got = arrays_of(world.clients[transport].predict(gtensors(f"{model}.{wire}", INPUT0=given)))
        assert list(got) == ["OUTPUT0"] and same(got["OUTPUT0"], given), name
    got = arrays_of(world.clients[transport].predict(gtensors(f"simple.{wire}", INPUT1=B, INPUT0=A)))
    assert same(got["OUTPUT0"], A + B) and same(got["OUTPUT1"], A - B)


@pytest.mark.parametrize("wire", [wire for wire in WIRES if not wire.startswith("grps")])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_grps_cannot_carry_is_refused_by_name(world: World, transport: str, wire: str) -> None:
    small = np.array([1], np.int64)
    for client, model in ((world.local, "identity_uint64"), (world.clients, f"identity_uint64.{wire}")):
        with pytest.raises(GrpsError, match="INPUT0"):
            client[transport].predict(gtensors(model, INPUT0=small))


@pytest.mark.parametrize("wire", WIRES)
def test_an_ndarray(world: World, wire: str) -> None:
    given = [0.1, -0.0, 3.4e38]
    url = f"?return-ndarray=true&model=identity_fp32.{wire}"
    got = world.clients["http"].predict_json({"ndarray": given}, url)
    wanted = world.local["http"].predict_json({"ndarray": given}, "?return-ndarray=true&model=identity_fp32")
    assert got == wanted
    assert np.array(got["ndarray"], np.float32).tobytes() == np.array(given, np.float32).tobytes()
    refused = world.clients["http"].predict_json({"ndarray": given}, f"?model=identity_int32.{wire}")
    assert refused["status"]["status"] == "FAILURE" and "INPUT0" in refused["status"]["msg"]


# ---- clients of other dialects before grps servers


@pytest.mark.parametrize("wire", GRPS_WIRES)
@pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_tritonclient(world: World, module: Any, wire: str) -> None:
    address = world.bridge.addresses[0 if module is triton_http else 1]
    with module.InferenceServerClient(address) as client:
        for name, model in IDENTITIES.items():
            array = DATATYPES[name]
            given = module.InferInput("INPUT0", array.shape, name.upper())
            given.set_data_from_numpy(array)
            if name in REFUSED:
                with pytest.raises(InferenceServerException, match="INPUT0.*UINT64.*grps"):
                    client.infer(f"{model}.{wire}", [given])
                continue
            got = client.infer(f"{model}.{wire}", [given], request_id="seven").as_numpy("OUTPUT0")
            assert same(got, array), name
        raw = module.InferInput("INPUT0", [1], "BYTES")
        raw.set_data_from_numpy(np.array([b"\xff"], object))
        with pytest.raises(InferenceServerException, match="INPUT0.*UTF-8"):
            client.infer(f"identity_bytes.{wire}", [raw])


@pytest.mark.parametrize("wire", [*GRPS_WIRES, *STANDINS])
def test_every_dialect_adds_and_subtracts(world: World, wire: str) -> None:
    http, grpc, _ = world.bridge.addresses
    for module, address in ((triton_http, http), (triton_grpc, grpc)):
        with module.InferenceServerClient(address) as client:
            given = [module.InferInput(name, [2, 16], "INT32") for name in ("INPUT0", "INPUT1")]
            for tensor, array in zip(given, (A, B), strict=True):
                tensor.set_data_from_numpy(array)
            wanted = [module.InferRequestedOutput("OUTPUT1")]
            answer = client.infer(f"simple.{wire}", given, outputs=wanted)
            assert same(answer.as_numpy("OUTPUT1"), A - B) and answer.as_numpy("OUTPUT0") is None
            assert client.is_model_ready(f"simple.{wire}")
            shapes = client.get_model_metadata(f"simple.{wire}")
            inputs = shapes["inputs"] if module is triton_http else shapes.inputs
            assert len(inputs) == 2
    for made, address in ((TrtisHttp, http), (TrtisGrpc, grpc)):
        client = made(address)
        outputs = client.infer(f"simple.{wire}", {"INPUT0": A, "INPUT1": B}, ["OUTPUT1", "OUTPUT0"]).outputs
        assert same(outputs["OUTPUT0"], A + B) and same(outputs["OUTPUT1"], A - B)
        client.close()
    total, difference = remote.execute_multi(f"http://{http}/graphpipe/simple.{wire}", [A, B], None, None)
    assert same(total, A + B) and same(difference, A - B)


@pytest.mark.parametrize("wire", GRPS_WIRES)
def test_graphpipe_and_version_1_carry_what_they_share(world: World, wire: str) -> None:
    http, grpc, _ = world.bridge.addresses
    trtis = TrtisGrpc(grpc)
    for name, model in IDENTITIES.items():
        if name in REFUSED:
            continue
        array = DATATYPES[name]
        if name not in NOT_IN["trtis"]:
            got = trtis.infer(f"{model}.{wire}", {"INPUT0": array}, ["OUTPUT0"]).outputs["OUTPUT0"]
            assert same(got, array), name
        if name not in NOT_IN["graphpipe"]:
            assert same(remote.execute(f"http://{http}/graphpipe/{model}.{wire}", array), array), name
    trtis.close()


# ---- without a signature, text, bytes, streams


@pytest.mark.parametrize("wire", STANDINS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_grps_server_behind_a_grps_listener(world: World, transport: str, wire: str) -> None:
    client, model = world.clients[transport], f"plain.{wire}"
    for name, array in arrays_of(client.predict(gtensors(model, **ALL))).items():
        assert same(array, ALL[name]), name
    assert client.predict(GrpsMessage(model=model, str_data="你好")).str_data == "你好"
    assert client.predict(GrpsMessage(model=model, bin_data=b"\0\xff")).bin_data == b"\0\xff"
    assert client.predict(GrpsMessage(model=model, str_data="bin")).bin_data == b"\0\1bin\xff"
    with pytest.raises(GrpsError, match="custom failure") as caught:
        client.predict(GrpsMessage(model=model, str_data="err:custom failure"))
    assert caught.value.code == 500


@pytest.mark.parametrize("wire", [wire for wire in STANDINS if wire.startswith("py")])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_traceback_is_for_the_log_and_its_last_line_for_callers(
    world: World, transport: str, wire: str
) -> None:
    model, text = f"plain.{wire}", f"failed over {transport}"
    with pytest.raises(GrpsError) as caught:
        world.clients[transport].predict(GrpsMessage(model=model, str_data=f"raise:{text}"))
    assert (caught.value.code, str(caught.value)) == (500, f"RuntimeError: {text}")
    trace = f'Traceback (most recent call last):\n  File "model.py", line 1\nRuntimeError: {text}\n'
    eventually(
        lambda: any((each.get("model"), each.get("exception")) == (model, trace) for each in world.bridge.log)
    )


@pytest.mark.parametrize("wire", STANDINS)
def test_named_tensors_need_no_signature(world: World, wire: str) -> None:
    for module, address in ((triton_http, 0), (triton_grpc, 1)):
        with module.InferenceServerClient(world.bridge.addresses[address]) as client:
            given = [module.InferInput(name, [2, 16], "INT32") for name in ("x", "y")]
            for tensor, array in zip(given, (A, B), strict=True):
                tensor.set_data_from_numpy(array)
            answer = client.infer(f"plain.{wire}", given)
            assert same(answer.as_numpy("x"), A) and same(answer.as_numpy("y"), B)
            answer = client.infer(f"plain.{wire}", given, outputs=[module.InferRequestedOutput("y")])
            assert answer.as_numpy("x") is None and same(answer.as_numpy("y"), B)
            with pytest.raises(InferenceServerException, match="without output 'z'"):
                client.infer(f"plain.{wire}", given, outputs=[module.InferRequestedOutput("z")])


@pytest.mark.parametrize("wire", [wire for wire in STANDINS if not wire.endswith("brpc")])
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_streams_go_through(world: World, transport: str, wire: str) -> None:
    client, model = world.clients[transport], f"plain.{wire}"
    pieces = list(client.stream(GrpsMessage(model=model, str_data="stream")))
    assert [piece.str_data for piece in pieces] == [f"stream data {number}" for number in range(3)]
    first, failed = client.stream(GrpsMessage(model=model, str_data="stream-err"))
    assert first.str_data == "stream data 0"
    assert (failed.status.code, failed.status.msg) == (500, "bad thing mid-stream")


@pytest.mark.parametrize("wire", ["grps_http", "grps_grpc"])
def test_a_stream_through_two_of_us(world: World, wire: str) -> None:
    for transport in ("http", "grpc"):
        said = world.clients[transport].stream(GrpsMessage(model=f"words.{wire}", str_data="to be or"))
        assert [piece.str_data for piece in said] == ["to", "be", "or"]
    url = f"http://{world.bridge.addresses[0]}/v2/models/words.{wire}/generate_stream"
    with requests.post(url, json={"TEXT": "not to be"}, stream=True, timeout=10) as reply:
        events = [line for line in reply.iter_lines() if line]
    assert [json.loads(event.removeprefix(b"data: "))["WORD"] for event in events] == ["not", "to", "be"]


def test_the_default_model_is_the_servers_own(world: World) -> None:
    for client in world.clients.values():
        assert client.predict(GrpsMessage(str_data="hello")).str_data == "hello"
    assert world.standins["py"].seen[-1].model == ""


def test_readiness_of_a_grps_server(world: World) -> None:
    server = world.standins["cpp"]
    with triton_http.InferenceServerClient(world.bridge.addresses[0]) as client:
        try:
            for wire in ("cpp_grps_http", "cpp_grps_grpc", "cpp_grps_brpc"):
                server.online["all"] = True
                assert client.is_model_ready(f"plain.{wire}")
                server.online["all"] = False
                assert not client.is_model_ready(f"plain.{wire}")
        finally:
            server.online["all"] = True


def test_megabytes(world: World) -> None:
    given = np.random.default_rng(7).random(1_000_000, dtype=np.float32)
    for transport in ("grpc", "brpc"):
        for wire in GRPS_WIRES:
            message = gtensors(f"identity_fp32.{wire}", INPUT0=given)
            assert same(arrays_of(world.clients[transport].predict(message))["OUTPUT0"], given)
