"""The same requests to MLServer and to a listener with its quirks: the same status, and the same values where
there is an answer. Each model tells what its inputs are once their content types are undone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.conformance.oip_client import Server
from tests.e2e.daemon import Daemon

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

MODEL = """
import json
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensor = utils.get_input_tensor_by_name(request, "I")
        told = [[each.hex() if isinstance(each, bytes) else each for each in tensor.as_numpy().ravel().tolist()]]
        return text(json.dumps(told))

def text(value):
    return utils.InferenceResponse([utils.Tensor("TEXT", np.array([value.encode()], object))])
"""
STREAMS = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for each in utils.get_input_tensor_by_name(request, "I").as_numpy().ravel().tolist():
                if each < 0:
                    sender.send(utils.InferenceResponse([], utils.TritonError("negative")))
                    break
                sender.send(text(str(each)))
            sender.send(flags=utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
MODELS = {
    "words": ("TYPE_STRING", "[ -1 ]"),
    "columns": ("TYPE_STRING", "[ -1, -1 ]"),
    "reals": ("TYPE_FP32", "[ -1 ]"),
    "wholes": ("TYPE_INT32", "[ -1 ]"),
    "pieces": ("TYPE_INT32", "[ -1 ]"),
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ours")
    for name, (datatype, dims) in MODELS.items():
        place = folder / "models" / name / "1"
        place.mkdir(parents=True)
        config = f'backend: "python" input {{ name: "I" data_type: {datatype} dims: {dims} }} '
        config += 'output { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } '
        code = MODEL
        if name == "pieces":
            config += "model_transaction_policy { decoupled: true }"
            code = MODEL.replace("\ndef text", STREAMS + "\ndef text")
        (place.parent / "config.pbtxt").write_text(config)
        (place / "model.py").write_text(code)
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {
                    "listen": "127.0.0.1:0",
                    "transport": transport,
                    "dialects": ["oip"],
                    "flavors": {"oip": "mlserver"},
                }
                for transport in ("http", "grpc")
            ],
            "model_repository": [
                {"path": str(folder / "models"), "control": "explicit", "load": list(MODELS)}
            ],
        },
    )
    try:
        yield Server(*daemon.addresses)
    finally:
        daemon.kill()


def http(server: Server, path: str, body: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://{server.http}{path}", body, {"Content-Type": "application/json"} if body else {}
    )
    if body is not None:
        request.method = "POST"
    try:
        with urllib.request.urlopen(request) as answer:
            told = answer.read()
            return answer.status, json.loads(told) if told else None
    except urllib.error.HTTPError as error:
        return error.code, None


def told_over_http(server: Server, model: str, document: dict[str, Any]) -> tuple[int, str]:
    status, answer = http(server, f"/v2/models/{model}/infer", json.dumps(document).encode())
    return status, answer["outputs"][0]["data"][0] if answer else ""


def document(
    datatype: str, shape: list[int], data: Any, content_type: str = "", of_all: str = ""
) -> dict[str, Any]:
    given: dict[str, Any] = {"name": "I", "datatype": datatype, "shape": shape, "data": data}
    if content_type:
        given["parameters"] = {"content_type": content_type}
    return {"inputs": [given], **({"parameters": {"content_type": of_all}} if of_all else {})}


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("words", document("BYTES", [2], ["aGVsbG8=", "!!"], "base64")),
        ("words", document("BYTES", [1], ["aGVsbG8="])),
        ("words", document("BYTES", [1], ["aGVsbG8="], "str")),
        ("words", document("BYTES", [2], ["aGVsbG8=", "é"], "np")),
        ("words", document("BYTES", [2], ["ab", "cd"], "pd")),
        ("words", document("BYTES", [2], ["ab", "cd"], of_all="pd")),
        ("words", document("BYTES", [1], ["aGVsbG8="], of_all="base64")),
        ("words", document("BYTES", [1], ["aGVsbG8="], "base64", of_all="pd")),
        ("words", document("BYTES", [11], "hello world", "str")),
        ("words", document("BYTES", [8], "aGVsbG8=", "base64")),
        ("columns", document("BYTES", [2, 1], ["ab", "cd"], "np")),
        ("columns", document("BYTES", [2, 1], ["aGVsbG8=", "cd"], "base64")),
        ("reals", document("FP32", [2], [1.5, None], "np")),
        ("reals", document("FP32", [2], [1.5, 2.5], of_all="pd")),
        ("wholes", document("INT32", [2], [1, 2], "np")),
        ("wholes", document("INT32", [2], [1, 2], of_all="np")),
        ("wholes", document("INT32", [2], [1, 2], "nonsense")),
    ],
)
def test_content_types_in_json(ours: Server, mlserver: Server, model: str, asked: dict[str, Any]) -> None:
    theirs = told_over_http(mlserver, model, asked)
    assert theirs[0] == 200
    assert told_over_http(ours, model, asked) == theirs


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/models/nope/unload",
        "/v2/repository/models/nope/load",
        "/v2/models/nope/infer",
    ],
)
def test_models_that_there_are_not(ours: Server, mlserver: Server, path: str) -> None:
    body = json.dumps(document("INT32", [1], [1])).encode() if path.endswith("infer") else b""
    assert http(ours, path, body)[0] == http(mlserver, path, body)[0] == 404


def test_what_is_unloaded_is_not_unloaded_again(ours: Server, mlserver: Server) -> None:
    for server in (ours, mlserver):
        told = [
            http(server, f"/v2/repository/models/columns/{act}", b"")[0]
            for act in ("unload", "unload", "load")
        ]
        assert told == [200, 404, 200]


def test_a_slash_at_the_end(ours: Server, mlserver: Server) -> None:
    for server in (ours, mlserver):
        assert http(server, "/v2/") == http(server, "/v2")
        assert http(server, "/v2")[0] == 200


# --- gRPC


def tensor(
    datatype: str, shape: list[int], content_type: str = "", empty: bool = False, **contents: Any
) -> Any:
    told = service_pb2.ModelInferRequest.InferInputTensor(name="I", datatype=datatype, shape=shape)
    if content_type:
        told.parameters["content_type"].string_param = content_type
    if contents or empty:
        told.contents.SetInParent()
    for field, values in contents.items():
        getattr(told.contents, field).extend(values)
    return told


def told_over_grpc(server: Server, model: str, given: Any, raws: list[bytes]) -> tuple[grpc.StatusCode, str]:
    asked = service_pb2.ModelInferRequest(model_name=model, inputs=[given], raw_input_contents=raws)
    with grpc.insecure_channel(server.grpc) as channel:
        try:
            answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(asked)
        except grpc.RpcError as error:
            return error.code(), ""
    return grpc.StatusCode.OK, text_of(answer)


def text_of(answer: Any) -> str:
    if answer.raw_output_contents:
        return answer.raw_output_contents[0][4:].decode()
    return answer.outputs[0].contents.bytes_contents[0].decode()


@pytest.mark.parametrize(
    ("model", "given", "raws"),
    [
        ("wholes", tensor("INT32", [2], empty=True), [b"\1\0\0\0\2\0\0\0"]),
        ("wholes", tensor("INT32", [2]), [b"\1\0\0\0\2\0\0\0"]),
        ("wholes", tensor("INT32", [2], "np", int_contents=[1, 2]), []),
        ("words", tensor("BYTES", [1], "base64", bytes_contents=[b"aGVsbG8="]), []),
        ("words", tensor("BYTES", [1], "base64"), [b"\x08\0\0\0aGVsbG8="]),
        ("words", tensor("BYTES", [1], "base64", bytes_contents=[b"\xff!"]), []),
        ("words", tensor("BYTES", [1], "str", bytes_contents=[b"hi"]), []),
        ("words", tensor("BYTES", [11], "str", bytes_contents=[b"hello world"]), []),
        ("words", tensor("BYTES", [2], "np", bytes_contents=[b"ab", b"cd"]), []),
        ("columns", tensor("BYTES", [6, 1], "np", bytes_contents=[b"abcdef"]), []),
        ("columns", tensor("BYTES", [6, 1], "np"), [b"\6\0\0\0abcdef"]),
    ],
)
def test_contents_over_grpc(
    ours: Server, mlserver: Server, model: str, given: Any, raws: list[bytes]
) -> None:
    theirs = told_over_grpc(mlserver, model, given, raws)
    assert theirs[0] is grpc.StatusCode.OK
    assert told_over_grpc(ours, model, given, raws) == theirs


@pytest.mark.parametrize("values", [[1], [1, 2, 3], [1, -1, 2]])
def test_streams_of_bare_answers(ours: Server, mlserver: Server, values: list[int]) -> None:
    def heard(server: Server) -> tuple[list[tuple[str, str]], grpc.StatusCode]:
        asked = service_pb2.ModelInferRequest(
            model_name="pieces", id="x", inputs=[tensor("INT32", [len(values)], "np", int_contents=values)]
        )
        found = []
        with grpc.insecure_channel(server.grpc) as channel:
            call = channel.stream_stream(
                "/inference.GRPCInferenceService/ModelStreamInfer",
                request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                response_deserializer=service_pb2.ModelInferResponse.FromString,
            )(iter([asked]))
            try:
                for answer in call:
                    found.append((answer.id, text_of(answer)))
            except grpc.RpcError as error:
                return found, error.code()
        return found, grpc.StatusCode.OK

    theirs = heard(mlserver)
    assert theirs[1] is (grpc.StatusCode.INTERNAL if -1 in values else grpc.StatusCode.OK)
    assert heard(ours) == theirs


@pytest.mark.parametrize("service", ["GRPCInferenceService", "model_repository.ModelRepositoryService"])
def test_the_repository_over_grpc(ours: Server, mlserver: Server, service: str) -> None:
    def told(server: Server, rpc: str, name: str = "") -> Any:
        message = f"RepositoryModel{rpc}Request" if name else "RepositoryIndexRequest"
        asked = getattr(service_pb2, message)(**({"model_name": name} if name else {}))
        with grpc.insecure_channel(server.grpc) as channel:
            call = channel.unary_unary(f"/inference.{service}/{message.removesuffix('Request')}")
            try:
                return call(asked.SerializeToString())
            except grpc.RpcError as error:
                return error.code()

    for server in (ours, mlserver):
        assert told(server, "Load", "nope") is grpc.StatusCode.NOT_FOUND
        assert told(server, "Unload", "nope") is grpc.StatusCode.NOT_FOUND
        assert told(server, "Load", "words") == b""
        index = service_pb2.RepositoryIndexResponse.FromString(told(server, ""))
        assert {"words", "pieces"} <= {model.name for model in index.models}


@pytest.mark.parametrize("flavor", ["auto", "mlserver"])
@pytest.mark.parametrize("values", [[1, 2, 3], [1, -1, 2]])
def test_streams_from_mlserver_upstream(
    mlserver: Server, tmp_path: Path, values: list[int], flavor: str
) -> None:
    """A client of Triton's form of streams reads those of MLServer through the daemon."""
    sides = [
        {"name": name, "datatype": kind, "shape": [-1]} for name, kind in (("I", "INT32"), ("TEXT", "BYTES"))
    ]
    config = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["oip"]}],
        "models": {
            "pieces": {
                "upstream": "there",
                "remote_model": "pieces",
                "signature": {"inputs": sides[:1], "outputs": sides[1:]},
            }
        },
        "upstreams": {
            "there": {"dialect": "oip", "transport": "grpc", "urls": [mlserver.grpc], "flavor": flavor}
        },
    }
    asked = service_pb2.ModelInferRequest(
        model_name="pieces",
        id="x",
        inputs=[tensor("INT32", [len(values)], int_contents=values)],
    )
    daemon = Daemon.start(tmp_path, config)
    try:
        with grpc.insecure_channel(daemon.addresses[0]) as channel:
            answers = list(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([asked])))
    finally:
        daemon.kill()
    told = [answer.error_message or text_of(answer.infer_response) for answer in answers]
    assert told == (["1", "negative"] if -1 in values else ["1", "2", "3"])


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_parameters_of_metadata_come_through(mlserver: Server, tmp_path: Path, transport: str) -> None:
    """MLServer tells the content type of an input in the parameters of its metadata."""
    config = {
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": each, "dialects": ["oip"], "flavors": {"oip": "mlserver"}}
            for each in ("http", "grpc")
        ],
        "models": {"reals": {"upstream": "there", "remote_model": "reals", "parameters": {"owner": "us"}}},
        "upstreams": {
            "there": {"dialect": "oip", "transport": transport, "urls": [getattr(mlserver, transport)]}
        },
    }
    daemon = Daemon.start(tmp_path, config)
    try:
        status, told = http(Server(*daemon.addresses), "/v2/models/reals")
        with grpc.insecure_channel(daemon.addresses[1]) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
            message = call(service_pb2.ModelMetadataRequest(name="reals").SerializeToString())
    finally:
        daemon.kill()
    assert status == 200
    assert told["inputs"][0]["parameters"] == {"content_type": "np"}
    assert told["parameters"] == {"owner": "us"}
    assert b"content_type\x12\x04\x1a\x02np" in message
    assert b"owner\x12\x04\x1a\x02us" in message


@pytest.fixture(scope="module")
def bridge(mlserver: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HTTP address of a daemon before MLServer: ``words.http`` is ``words`` there, over HTTP."""
    models = {
        f"{name}.{over}": {"upstream": over, "remote_model": name}
        for name in ("simple", "encoded", "words", "params", "reals")
        for over in ("http", "grpc")
    }
    config = {
        "listeners": [
            {
                "listen": "127.0.0.1:0",
                "transport": "http",
                "dialects": ["oip"],
                "flavors": {"oip": "mlserver"},
            }
        ],
        "models": models,
        "upstreams": {
            over: {"dialect": "oip", "transport": over, "urls": [getattr(mlserver, over)]}
            for over in ("http", "grpc")
        },
    }
    daemon = Daemon.start(tmp_path_factory.mktemp("bridge"), config)
    try:
        yield daemon.addresses[0]
    finally:
        daemon.kill()


@pytest.mark.parametrize("over", ["http", "grpc"])
@pytest.mark.parametrize(
    ("model", "asked"),
    [
        (
            "simple",
            {
                "inputs": [
                    {"name": f"INPUT{n}", "datatype": "INT32", "shape": [1, 16], "data": [n] * 16}
                    for n in (1, 0)
                ]
            },
        ),
        ("encoded", document("INT32", [1], [1])),
        ("words", document("BYTES", [2], ["aGVsbG8=", "!!"], "base64")),
        ("words", document("BYTES", [1], ["aGVsbG8="], "str")),
        ("words", document("BYTES", [11], "hello world", "str")),
        ("words", document("BYTES", [1], ["aGVsbG8="])),
        ("params", {**document("INT32", [1], [1]), "id": "x", "parameters": {"tags": [1, "two"], "n": 1}}),
        ("reals", document("FLOAT", [1], [1])),
    ],
)
def test_callers_get_what_mlserver_answers(
    bridge: str, mlserver: Server, model: str, asked: dict[str, Any], over: str
) -> None:
    """With the parameters of the outputs, by which its clients choose a codec."""
    body = json.dumps(asked).encode()
    theirs, ours = (
        http(server, f"/v2/models/{name}/infer", body)
        for server, name in ((mlserver, model), (Server(bridge, ""), f"{model}.{over}"))
    )
    assert ours[0] == theirs[0]
    assert (ours[1] or {}).get("outputs") == (theirs[1] or {}).get("outputs")


@pytest.mark.parametrize("over", ["http", "grpc"])
@pytest.mark.parametrize(
    "asked",
    [
        document("FP32", [2], [1.5, None], of_all="pd"),
        {**document("FP32", [1], [1.5]), "outputs": [{"name": "NOPE"}]},
    ],
)
def test_what_mlserver_cannot_answer_is_the_callers_mistake(
    bridge: str, asked: dict[str, Any], over: str
) -> None:
    body = json.dumps(asked).encode()
    assert http(Server(bridge, ""), f"/v2/models/reals.{over}/infer", body)[0] == 400


def test_kserve_answers_json_without_an_id(kserve: Server) -> None:
    """The server of these tests gives every answer an id, without which KServe's own types refuse it."""
    given = {"name": "I", "datatype": "INT32", "shape": [1], "data": [7]}
    status, answer = http(kserve, "/v2/models/identity_int32/infer", json.dumps({"inputs": [given]}).encode())
    assert status == 200
    assert answer["outputs"][0]["data"] == [7]
    assert answer["id"]
