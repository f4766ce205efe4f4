"""A refusal does not repeat the request: whatever a hostile one has, the answer is small, in every dialect."""

from __future__ import annotations

import gzip
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from graphpipe import convert
from tritonclient.grpc import service_pb2

from interlingua.schemas.tfserving import MESSAGES as TFSERVING
from tests.chaos.world import listener as every_dialect
from tests.e2e.daemon import ROOT, Daemon
from tests.standins.brpc_frames import SERVICE, request_frame
from tests.standins.framed import framed
from tests.standins.grps_contract import GrpsMessage
from tests.standins.trtis_contract import message as trtis_message

LIMIT = 64_000
"""No answer is larger, head included: a message has 8192 characters, and an escape has up to six for one."""

LONG = {
    "one word": "N" * 1_000_000,
    "words": "some words of a name " * 50_000,
    "wide": "é\t\u2028" * 300_000,
    "controls": "\x01\x1b " * 300_000,
}
MANY = [f"tensor-{n}" for n in range(5000)]
DEEP = b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("bounded")
    cpp = {"dialects": ["grps"], "flavors": {"grps": "cpp"}}
    kserve = {"dialects": ["tfserving"], "flavors": {"tfserving": "kserve"}}
    running = Daemon.start(
        folder,
        {
            "listeners": [
                every_dialect("http"),
                every_dialect("grpc"),
                {"listen": "127.0.0.1:0", "transport": "brpc", **cpp},
                {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": "identity_fp32"},
                {"listen": "127.0.0.1:0", "transport": "http", **cpp},
                every_dialect("http", engine="library"),
                every_dialect("grpc", engine="library"),
                {
                    "listen": "127.0.0.1:0",
                    "transport": "http",
                    "dialects": ["graphpipe"],
                    "graphpipe_errors": "inband",
                },
                {"listen": "127.0.0.1:0", "transport": "http", **kserve},
            ],
            "model_repository": [
                {"path": str(ROOT / "examples" / "models"), "control": "explicit", "overrides": "config"}
            ],
            "default_model": "identity_fp32",
        },
    )
    try:
        yield running
        assert running.stop() == 0
        assert not [line for line in running.log if "unexpected error" in line["event"]], running.log
        assert max(len(json.dumps(line)) for line in running.log) < LIMIT
    finally:
        running.kill()


def exchange(address: str, request: bytes) -> bytes:
    """The answer: over HTTP all that the server sends until it closes, else one message."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        received = b""
        while len(received) < _size(received) and (piece := connection.recv(65536)):
            received += piece
    return received


def _size(received: bytes) -> int:
    """How many bytes of an answer that begins like this to read."""
    if received.startswith(b"PRPC"):
        return 12 + int.from_bytes(received[4:8], "big")
    if received.startswith(b"HTTP") or len(received) < 4:
        return 4 * LIMIT
    return 4 + int.from_bytes(received[:4], "little")


def http(address: str, path: str, body: Any, *headers: str) -> bytes:
    """The answer to a POST of ``body``, compressed, which the client wants closed."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Content-Length: {len(data)}",
        "Connection: close",
        *headers,
    )
    answer = exchange(address, "\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    assert len(answer) < LIMIT, answer[:200]
    return answer


def tensor(**more: Any) -> dict[str, Any]:
    return {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0], **more}


def oip_bodies(long: str) -> dict[str, Any]:
    good = tensor()
    return {
        "input": {"inputs": [tensor(name=long)]},
        "datatype": {"inputs": [tensor(datatype=long)]},
        "id": {"id": long, "inputs": [tensor(shape=[3])]},
        "output": {"inputs": [good], "outputs": [{"name": long}]},
        "parameter": {"inputs": [good], "parameters": {long: {"a": []}}},
        "parameter of an input": {"inputs": [tensor(parameters={long: [1]})]},
        "value": {"inputs": [good], "parameters": {"classification": long}},
        "region": {"inputs": [{**good, "parameters": {"shared_memory_region": long}}]},
        "key": {"inputs": [good], long: 1},
        "data": {"inputs": [tensor(data=[long, 1.0])]},
    }


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("listener", [0, 5])
def test_oip_over_http(daemon: Daemon, listener: int, kind: str) -> None:
    address = daemon.addresses[listener]
    for body in oip_bodies(LONG[kind]).values():
        http(address, "/v2/models/identity_fp32/infer", body)
        packed = gzip.compress(json.dumps(body).encode())
        http(address, "/v2/models/identity_fp32/infer", packed, "Content-Encoding: gzip")
    region = {"key": LONG[kind], "offset": 0, "byte_size": 8}
    http(address, "/v2/systemsharedmemory/region/r/register", region)
    for body in ({LONG[kind]: 1}, {"log_file": LONG[kind]}, {"log_format": LONG[kind]}):
        http(address, "/v2/logging", body)
    http(address, "/v2/trace/setting", {LONG[kind]: "x"})
    config = {"parameters": {"config": json.dumps({LONG[kind]: 1})}}
    http(address, "/v2/repository/models/simple/load", config)
    config = {"parameters": {"config": json.dumps({"backend": LONG[kind], "max_batch_size": 1})}}
    http(address, "/v2/repository/models/simple/load", config)
    http(address, "/v2/repository/index", {})


def test_many_tensors_and_deep_documents(daemon: Daemon) -> None:
    many = {"inputs": [tensor(name=name) for name in MANY]}
    asked = {"inputs": [tensor()], "outputs": [{"name": name} for name in MANY]}
    for listener in (0, 5):
        for body in (many, asked, DEEP, {"inputs": [tensor(shape=list(range(1, 5000)))]}):
            http(daemon.addresses[listener], "/v2/models/identity_fp32/infer", body)
        path = "/grps/v1/infer/predict"
        http(daemon.addresses[listener], path, DEEP, "Content-Type: application/json")


@pytest.mark.parametrize("listener", [0, 4, 5, 8])
@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/{}/infer",
        "/v2/models/identity_fp32/versions/{}/infer",
        "/v2/repository/models/{}/load",
        "/v2/{}",
        "/api/infer/{}",
        "/api/status/{}",
        "/api/{}",
        "/graphpipe/{}",
        "/grps/v1/{}",
        "/grps/v1/metadata/model?model={}",
        "/v1/models/{}",
        "/v1/models/{}:predict",
        "/v1/models/identity_fp32/versions/{}:predict",
        "/v1/models/identity_fp32/labels/{}:classify",
        "/v1/models/identity_fp32:{}",
        "/{}",
    ],
)
def test_long_paths_and_headers(daemon: Daemon, listener: int, path: str) -> None:
    address = daemon.addresses[listener]
    for long in ("N" * 7000, "%C3%A9%01" * 700, "7" * 7000):
        http(address, path.format(long), {})
    http(address, path.format("x"), {}, f"Content-Encoding: {'N' * 7000}", f"Content-Type: {'N' * 7000}")
    header = f"NV-InferRequest: batch_size: 1 {'N' * 7000}"
    http(address, path.format("identity_fp32"), b"12345678", header)


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("listener", [0, 4, 5])
def test_grps_over_http(daemon: Daemon, listener: int, kind: str) -> None:
    long = LONG[kind]
    fine = {"name": "INPUT0", "dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1, 2]}
    for body in (
        {"model": long, "str_data": "x"},
        {"model": "identity_fp32", "gtensors": {"tensors": [{**fine, "name": long}]}},
        {"model": "identity_fp32", "gtensors": {"tensors": [{**fine, "dtype": long}]}},
        {"model": "identity_fp32", "gtensors": {"tensors": [{**fine, long: 1}]}},
        {"model": "identity_fp32", "gtensors": {"tensors": [{**fine, "flat_float32": [long]}]}},
        {long: 1},
    ):
        http(daemon.addresses[listener], "/grps/v1/infer/predict", body, "Content-Type: application/json")


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("listener", [0, 8])
def test_tfserving_over_http(daemon: Daemon, listener: int, kind: str) -> None:
    long, address = LONG[kind], daemon.addresses[listener]
    for body in (
        {"inputs": {long: [1]}},
        {"inputs": [long]},
        {"inputs": [{"b64": long}]},
        {"instances": [{long: 1}]},
        {"instances": [dict.fromkeys(MANY, 1), {}]},
        {"instances": [{**dict.fromkeys(MANY, 1), long: 1}, {long: 1}]},
        {"inputs": [1], "signature_name": long},
        {long: 1},
        DEEP,
    ):
        http(address, "/v1/models/identity_fp32:predict", body)
    for body in (
        {"examples": [{long: 1}]},
        {"examples": [dict.fromkeys(MANY, 1)]},
        {"examples": [{"DATA": long}]},
    ):
        http(address, "/v1/models/classy:classify", body)


def graphpipe(name: str, config: str = "") -> bytes:
    array = np.ones(3, np.float32)
    return bytes(convert.serialize_infer_request(convert.InferReq(config, [array], [name], [name])))


@pytest.mark.parametrize("kind", LONG)
def test_graphpipe(daemon: Daemon, kind: str) -> None:
    for body in (graphpipe(LONG[kind]), graphpipe("INPUT0", LONG[kind])):
        http(daemon.addresses[0], "/graphpipe/identity_fp32", body)
        http(daemon.addresses[7], "/", body)
        answer = exchange(daemon.addresses[3], framed(body))
        assert 0 < len(answer) < LIMIT


def called(address: str, method: str, message: bytes) -> int:
    """The size of the answer and of the status of a call."""
    options = [("grpc.max_metadata_size", 1 << 22), ("grpc.absolute_max_metadata_size", 1 << 22)]
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            return len(channel.unary_unary(method)(message, timeout=20))
        except grpc.RpcError as error:
            refusal = error
    assert refusal.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
    return len(refusal.details().encode()) + sum(len(value) for _, value in refusal.trailing_metadata())


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("listener", [1, 6])
def test_grpc(daemon: Daemon, listener: int, kind: str) -> None:
    long, address = LONG[kind], daemon.addresses[listener]
    calls: list[tuple[str, Any]] = []
    for change in ("model_name", "model_version", "name", "datatype", "output", "parameter"):
        request = service_pb2.ModelInferRequest(model_name="identity_fp32", id="1")
        request.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
        request.raw_input_contents.append(struct.pack("<2f", 1, 2))
        if change in ("name", "datatype"):
            setattr(request.inputs[0], change, long)
        elif change == "output":
            request.outputs.add(name=long)
        elif change == "parameter":
            request.inputs[0].parameters["shared_memory_region"].string_param = long
        else:
            setattr(request, change, long)
        calls.append(("/inference.GRPCInferenceService/ModelInfer", request))
    load = service_pb2.RepositoryModelLoadRequest(model_name=long)
    calls.append(("/inference.GRPCInferenceService/RepositoryModelLoad", load))
    request = trtis_message("InferRequest", model_name=long, model_version=-1)
    calls.append(("/nvidia.inferenceserver.GRPCService/Infer", request))
    request = trtis_message("InferRequest", model_name="identity_fp32", model_version=-1)
    request.meta_data.input.add(name=long)
    calls.append(("/nvidia.inferenceserver.GRPCService/Infer", request))
    calls.append(
        ("/nvidia.inferenceserver.GRPCService/Status", trtis_message("StatusRequest", model_name=long))
    )
    calls.append(("/grps.protos.v1.GrpsService/Predict", GrpsMessage(model=long, str_data="x")))
    calls += tfserving_calls(long)
    for method, message in calls:
        assert called(address, method, message.SerializeToString()) < LIMIT, method
    assert called(address, f"/{'N' * 4000}/M", b"") < LIMIT


def tfserving_calls(long: str) -> list[tuple[str, Any]]:
    def request(kind: str, **fields: Any) -> Any:
        return TFSERVING[f"tensorflow.serving.{kind}Request"](**fields)

    predict, spec = "/tensorflow.serving.PredictionService/", {"name": "identity_fp32"}
    good = {"dtype": 1, "tensor_shape": {"dim": [{"size": 1}]}, "float_val": [1]}
    example = {"features": {"feature": {long: {"float_list": {"value": [1]}}}}}
    found = [
        (f"{predict}Predict", request("Predict", **fields))
        for fields in (
            {"model_spec": {"name": long}},
            {"model_spec": {**spec, "signature_name": long}},
            {"model_spec": {**spec, "version_label": long}},
            {"model_spec": spec, "inputs": {long: good}},
            {"model_spec": spec, "inputs": {"INPUT0": good}, "output_filter": [long]},
            {"model_spec": spec, "inputs": {"INPUT0": good}, "output_filter": MANY},
        )
    ]
    given = {"example_list": {"examples": [example]}}
    found.append(
        (f"{predict}Classify", request("Classification", model_spec={"name": "classy"}, input=given))
    )
    task = {"model_spec": spec, "method_name": long}
    found.append((f"{predict}MultiInference", request("MultiInference", tasks=[task], input=given)))
    found.append(
        (f"{predict}GetModelMetadata", request("GetModelMetadata", model_spec=spec, metadata_field=[long]))
    )
    status = request("GetModelStatus", model_spec={"name": long})
    return [*found, ("/tensorflow.serving.ModelService/GetModelStatus", status)]


@pytest.mark.parametrize("kind", LONG)
def test_brpc(daemon: Daemon, kind: str) -> None:
    long = LONG[kind]
    message = GrpsMessage(model=long, str_data="x").SerializeToString()
    word = long[:5000]
    for frame in (
        request_frame("Predict", message),
        request_frame("Predict", b"\xff" * 1000),
        request_frame(word),
        request_frame("Predict", service=word),
        request_frame(word, service=SERVICE),
    ):
        assert 0 < len(exchange(daemon.addresses[2], frame)) < LIMIT
