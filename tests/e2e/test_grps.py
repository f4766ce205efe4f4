"""grps before the running daemon: its interfaces over real sockets, by clients that know nothing of ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
import yaml

from interlingua.schemas.oip import HEALTH_MESSAGES
from tests.e2e.daemon import ROOT, Daemon
from tests.standins.grps_client import GrpsGrpc
from tests.standins.grps_contract import STUBS, GrpsMessage, gtensors

HEALTH_REQUEST: Any = HEALTH_MESSAGES["grpc.health.v1.HealthCheckRequest"]
HEALTH_RESPONSE: Any = HEALTH_MESSAGES["grpc.health.v1.HealthCheckResponse"]
SERVING = 1

SEED = """
input [ { name: "in1" data_type: TYPE_INT32 dims: [ 3, 2 ] }, { name: "in2" data_type: TYPE_FP64 dims: [ 3, 3 ] } ]
output [ { name: "out1" data_type: TYPE_INT32 dims: [ 3, 2 ] }, { name: "out2" data_type: TYPE_FP64 dims: [ 3, 3 ] } ]
"""
SEED_MODEL = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        def twice(request, name):
            return pb.get_input_tensor_by_name(request, name).as_numpy() * 2

        return [
            pb.InferenceResponse([pb.Tensor("out1", twice(each, "in1")), pb.Tensor("out2", twice(each, "in2"))])
            for each in requests
        ]
"""
ASKED = """
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
model_transaction_policy { decoupled: true }
"""
ASKED_MODEL = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for word in ("a", "stream") if request.is_streaming() else ("all",):
                sender.send(pb.InferenceResponse([pb.Tensor("TEXT", np.array([word], np.object_))]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
IN1 = {"name": "in1", "dtype": "DT_INT32", "shape": [3, 2], "flat_int32": [1, 2, 3, 4, 5, 6]}
IN2 = {"name": "in2", "dtype": "DT_FLOAT64", "shape": [3, 3], "flat_float64": [i / 10 for i in range(9)]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Listeners, in order: HTTP with every dialect, gRPC, bRPC, HTTP as the C++ server has it."""
    folder = tmp_path_factory.mktemp("grps")
    for name, config, model in (("seed", SEED, SEED_MODEL), ("asked", ASKED, ASKED_MODEL)):
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(f'backend: "python"{config}')
        (folder / "models" / name / "1" / "model.py").write_text(model)
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "http"},
                {"listen": "127.0.0.1:0", "transport": "grpc"},
                {"listen": "127.0.0.1:0", "transport": "brpc"},
                {
                    "listen": "127.0.0.1:0",
                    "transport": "http",
                    "dialects": ["grps"],
                    "flavors": {"grps": "cpp"},
                },
            ],
            "model_repository": [
                {"path": str(folder / "models")},
                {
                    "path": str(ROOT / "examples" / "models"),
                    "load": ["words", "digits", "identity_fp32", "identity_bytes"],
                },
            ],
            "default_model": "identity_fp32",
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


def curl(*arguments: str) -> Any:
    """What curl prints, as JSON."""
    done = subprocess.run(["curl", "-s", *arguments], capture_output=True, check=True, timeout=30)
    return json.loads(done.stdout)


def predict(daemon: Daemon, document: Any, listener: int = 0, query: str = "") -> requests.Response:
    return requests.post(
        f"http://{daemon.addresses[listener]}/grps/v1/infer/predict{query}", json=document, timeout=30
    )


def test_the_samples_of_the_interface_document(daemon: Daemon) -> None:
    url = f"http://{daemon.addresses[0]}/grps/v1/infer/predict"
    told = curl(
        "-X",
        "POST",
        "-H",
        "Content-Type:application/json",
        "-d",
        json.dumps({"model": "seed-1", "gtensors": {"tensors": [IN1, IN2]}}),
        url,
    )
    assert told["status"] == {"code": 200, "msg": "OK", "status": "SUCCESS"}
    first, second = told["gtensors"]["tensors"]
    assert first == {
        "name": "out1",
        "dtype": "DT_INT32",
        "shape": [3, 2],
        "flat_int32": [2, 4, 6, 8, 10, 12],
    }
    assert second["flat_float64"] == [2 * (i / 10) for i in range(9)]
    told = curl("-X", "POST", "-H", "Content-Type:application/json", "-d", '{"ndarray": [1, 2.5]}', url)
    assert told["gtensors"]["tensors"][0]["flat_float32"] == [1.0, 2.5]
    told = curl(
        "-H", "Content-Type:application/json", "-d", '{"ndarray": [1, 2]}', f"{url}?return-ndarray=true"
    )
    assert told["ndarray"] == [1.0, 2.0]


@pytest.mark.parametrize("listener", [0, 3])
def test_the_slip_of_the_document_is_refused_by_name(daemon: Daemon, listener: int) -> None:
    """It writes ``flat_double``, which is no field; the original servers answer 200 and empty the tensor."""
    slip = {"flat_double" if key == "flat_float64" else key: value for key, value in IN2.items()}
    reply = predict(daemon, {"model": "seed", "gtensors": {"tensors": [IN1, slip]}}, listener)
    assert reply.status_code == {0: 500, 3: 200}[listener]
    status = reply.json()["status"]
    assert (status["code"], status["status"]) == (500, "FAILURE")
    assert "in2" in status["msg"] and "data is empty" in status["msg"]
    assert "flat_double is no field, did you mean flat_float64?" in status["msg"]


def test_a_stream_over_http_and_grpc(daemon: Daemon) -> None:
    document = {"model": "words", "gtensors": {"tensors": [_text("one after another")]}}
    for listener in (0, 3):
        reply = predict(daemon, document, listener, "?streaming=true")
        assert reply.headers["Transfer-Encoding"] == "chunked"
        assert reply.headers["Content-Type"] == "application/octet-stream"
        words, decoder = [], json.JSONDecoder()
        rest = reply.text
        while rest := rest.lstrip():
            piece, end = decoder.raw_decode(rest)
            assert piece["status"]["code"] == 200
            (tensor,) = piece["gtensors"]["tensors"]
            words += tensor["flat_string"]
            rest = rest[end:]
        assert words == ["one", "after", "another"]
    client = GrpsGrpc(daemon.addresses[1])
    asked = GrpsMessage(model="words-1")
    asked.gtensors.tensors.add(name="TEXT", dtype=9, shape=[1], flat_string=["one after another"])
    told = list(client.stream(asked))
    assert [list(piece.gtensors.tensors[0].flat_string) for piece in told] == [
        ["one"],
        ["after"],
        ["another"],
    ]
    assert all(piece.status.code == 200 for piece in told)
    client.close()


def test_one_model_serves_predict_and_streams(daemon: Daemon) -> None:
    """A model that streams answers Predict too: with its one piece, where it gives one."""
    for listener in (0, 3):
        document = {"model": "words", "gtensors": {"tensors": [_text("alone")]}}
        reply = predict(daemon, document, listener)
        assert (reply.status_code, reply.json()["status"]["code"]) == (200, 200)
        assert reply.json()["gtensors"]["tensors"][0]["flat_string"] == ["alone"]
        document = {"model": "words", "gtensors": {"tensors": [_text("one after another")]}}
        reply = predict(daemon, document, listener)
        assert reply.status_code == {0: 501, 3: 200}[listener]
        status = reply.json()["status"]
        assert (status["code"], status["status"]) == (501, "FAILURE")
        assert status["msg"] == (
            "model 'words' gives more than one answer to this request: call it as a stream"
        )
    asked = GrpsMessage(model="words-1")
    asked.gtensors.tensors.add(name="TEXT", dtype=9, shape=[1], flat_string=["alone"])
    for listener, stub in ((1, STUBS.GrpsServiceStub), (2, STUBS.GrpsBrpcServiceStub)):
        client = GrpsGrpc(daemon.addresses[listener], stub)
        assert list(client.predict(asked).gtensors.tensors[0].flat_string) == ["alone"]
        client.close()
    # and one that gives as many as its caller takes, as grps' models do by context.if_streaming()
    document = {"model": "asked", "str_data": "?"}
    assert predict(daemon, document).json()["str_data"] == "all"
    pieces = predict(daemon, document, query="?streaming=true").text.replace("}{", "}|{").split("|")
    assert [json.loads(piece)["str_data"] for piece in pieces] == ["a", "stream"]
    client = GrpsGrpc(daemon.addresses[1])
    asked = GrpsMessage(model="asked", str_data="?")
    assert client.predict(asked).str_data == "all"
    assert [piece.str_data for piece in client.stream(asked)] == ["a", "stream"]
    client.close()
    # Triton refuses one answer of such a model
    url = f"http://{daemon.addresses[0]}/v2/models/words/infer"
    given = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["alone"]}
    refused = requests.post(url, json={"inputs": [given]}, timeout=30)
    assert refused.status_code == 501 and "decoupled transaction policy" in refused.json()["error"]


def test_grpc_and_the_stub_on_the_ports_of_the_cpp_server(daemon: Daemon) -> None:
    """brpc's server tells protocols apart by how a connection begins, and serves its stub on both ports."""
    client = GrpsGrpc(daemon.addresses[2], STUBS.GrpsBrpcServiceStub)
    try:
        asked = gtensors("identity_fp32-1", INPUT0=np.arange(6, dtype=np.float32))
        (tensor,) = client.predict(asked).gtensors.tensors
        assert (tensor.shape, tensor.flat_float32) == ([6], list(range(6)))
        assert client.get("live").status.code == 200
        assert "identity_fp32" in client.get("server").str_data
    finally:
        client.close()
    other = GrpsGrpc(daemon.addresses[2])
    try:
        with pytest.raises(grpc.RpcError) as refused:
            other.predict(asked)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        other.close()
    for listener in (0, 2, 3):
        url = f"http://{daemon.addresses[listener]}/GrpsBrpcService/Predict"
        headers = {"Content-Type": "application/x-protobuf"}
        reply = requests.post(url, data=asked.SerializeToString(), headers=headers, timeout=30)
        assert reply.headers["Content-Type"] == "application/x-protobuf"
        assert GrpsMessage.FromString(reply.content).gtensors.tensors[0].flat_float32 == list(range(6))
        reply = requests.post(url, json={"ndarray": [1, 2.5]}, timeout=30)
        assert reply.json()["gtensors"]["tensors"][0]["flat_float32"] == [1, 2.5]


def _text(value: str) -> dict[str, Any]:
    return {"name": "TEXT", "dtype": "DT_STRING", "shape": [1], "flat_string": [value]}


@pytest.fixture(params=["grps", "all"])
def switched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Daemon, str]]:
    """A daemon that clients may set offline, and what they set offline."""
    server = {} if request.param == "grps" else {"offline_scope": request.param}
    daemon = Daemon.start(
        tmp_path,
        {
            "server": server,
            "listeners": [{"listen": "127.0.0.1:0", "transport": each} for each in ("http", "grpc")],
            "admin": {"listen": "127.0.0.1:0"},
            "model_repository": [{"path": str(ROOT / "examples" / "models"), "load": ["digits"]}],
        },
    )
    yield daemon, request.param
    daemon.kill()


def test_what_is_offline(switched: tuple[Daemon, str]) -> None:
    daemon, scope = switched
    http, rpc = f"http://{daemon.addresses[0]}", daemon.addresses[1]
    admin = daemon.until("admin listening")["address"]
    probes = ("/grps/v1/health/ready", "/v2/health/ready", "/api/health/ready", "/control/is_ready")

    def seen() -> list[bool]:
        assert requests.get(f"http://{admin}/health/live", timeout=10).status_code == 200
        with grpc.insecure_channel(rpc) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check", HEALTH_REQUEST.SerializeToString, HEALTH_RESPONSE.FromString
            )
            health = check(HEALTH_REQUEST(), timeout=10)
        return [
            *(requests.get(http + path, timeout=10).status_code == 200 for path in probes),
            health.status == SERVING,
            requests.get(f"http://{admin}/health/ready", timeout=10).status_code == 200,
        ]

    assert seen() == [True] * 6
    assert requests.get(f"{http}/grps/v1/health/offline", timeout=10).status_code == 200
    try:
        assert seen() == [False, *[scope == "grps"] * 5]
        assert requests.get(f"{http}/grps/v1/health/live", timeout=10).status_code == 200
        asked = {"inputs": [{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}]}
        answer = requests.post(f"{http}/v2/models/digits/infer", json=asked, timeout=10)
        assert (answer.status_code, len(answer.json()["outputs"])) == (200, 2)
    finally:
        assert requests.post(f"{http}/grps/v1/health/online", timeout=10).status_code == 200
    assert seen() == [True] * 6


def test_metadata_tell_of_the_daemon_itself(daemon: Daemon) -> None:
    told = requests.get(f"http://{daemon.addresses[0]}/grps/v1/metadata/server", timeout=10).json()
    document = yaml.safe_load(told["str_data"])
    host, http = daemon.addresses[0].split(":")
    ports = [address.split(":")[1] for address in daemon.addresses[1:3]]
    assert document["interface"] == {
        "framework": "http+grpc+brpc",
        "host": host,
        "port": ",".join((http, *ports)),
    }
    assert "seed" in [model["name"] for model in document["models"]]
    assert document["dag"]["nodes"] == [{"name": "node-1", "type": "model", "model": "identity_fp32-1"}]


def test_the_page_of_metrics_and_graphpipe_share_the_root(daemon: Daemon) -> None:
    http = f"http://{daemon.addresses[0]}"
    page = requests.get(f"{http}/", headers={"accept": "text/html"}, timeout=10)
    assert page.headers["Content-Type"] == "text/html"
    assert "*qps" in page.text
    series = requests.get(f"{http}/grps/v1/monitor/series?name=*latency_max(ms)", timeout=10).json()
    assert series["label"] == "trend"
    assert max(value for _, value in series["data"]) > 0, "there have been requests"
    assert requests.get(f"{http}/graphpipe/digits", timeout=10).json()["Name"] == "digits"
    # a POST there is GraphPipe's still, and this is none
    assert requests.post(f"{http}/", data=b"no message", timeout=10).status_code == 400


def test_a_server_that_starts_offline(tmp_path: Path) -> None:
    daemon = Daemon.start(
        tmp_path,
        {
            "server": {"start_offline": True},
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
            "model_repository": [{"path": str(ROOT / "examples" / "models"), "load": ["digits"]}],
        },
    )
    try:
        http = f"http://{daemon.addresses[0]}"
        assert requests.get(f"{http}/v2/health/ready", timeout=10).status_code == 400
        assert requests.get(f"{http}/grps/v1/health/online", timeout=10).status_code == 200
        assert requests.get(f"{http}/v2/health/ready", timeout=10).status_code == 200
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_a_model_that_writes_http_answers(tmp_path: Path) -> None:
    daemon = Daemon.start(
        tmp_path,
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http", "dialects": ["grps", "oip"]}],
            "model_repository": [{"path": str(ROOT / "examples" / "http_models")}],
            "default_model": "chat",
            "grps": {
                "customized_predict_http": {
                    "path": "/v1/chat/completions",
                    "customized_body": True,
                    "streaming_ctrl": {
                        "ctrl_mode": "body_param",
                        "ctrl_key": "stream",
                        "res_content_type": "text/event-stream",
                    },
                }
            },
        },
    )
    try:
        http = f"http://{daemon.addresses[0]}"
        asked = {"messages": [{"role": "user", "content": "hello you"}]}
        for path in ("/v1/chat/completions", "/grps/v1/infer/predict"):
            whole = requests.post(http + path, json=asked, timeout=30)
            assert whole.headers["Content-Type"] == "application/json"
            assert whole.json()["choices"][0]["message"]["content"] == "hello you"
            stream = requests.post(http + path, json={**asked, "stream": True}, timeout=30)
            assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            events = stream.text.split("\n\n")
            assert [json.loads(event[6:])["choices"][0]["delta"]["content"] for event in events[:2]] == [
                "hello",
                "you",
            ]
            assert events[2:] == ["data: [DONE]", ""]
        refused = requests.post(f"{http}/v1/chat/completions", data=b"?", timeout=30)
        assert (refused.status_code, refused.headers["Content-Type"]) == (400, "application/json")
        nobody = requests.post(f"{http}/v1/chat/completions?model=nope", json=asked, timeout=30)
        assert (nobody.status_code, nobody.headers["Content-Type"]) == (500, "text/plain")
        assert requests.get(f"{http}/v2/health/ready", timeout=10).status_code == 200
        assert daemon.stop() == 0
    finally:
        daemon.kill()
