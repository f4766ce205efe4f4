"""The methods over gRPC and bRPC, and over HTTP/1.1 beside the latter, through a pipeline without a network."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
import yaml

from interlingua.protocols.brpc_status import BrpcStatus
from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.message import OK, GenericTensor, GrpsMessage, Kind, Status, StatusFlag
from interlingua.protocols.grps.options import PredictOptions
from interlingua.protocols.grps.server_rpc import BRPC_SERVICE, GRPC_SERVICE, STREAMING
from interlingua.protocols.wire import BrpcRequest, Buffer, GrpcAnswer, GrpcRequest, HttpRequest, parts_of
from interlingua.schemas import Context, ServerMetadata
from interlingua.schemas.grps import MESSAGES
from interlingua.translator.serving.handler_http import HttpPipeline
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.conformance.grps_echo import Echo
from tests.conformance.grps_replay import flavored

HERE = Context(peer="127.0.0.1")
CALLS = ("Predict", "Online", "Offline", "CheckLiveness", "CheckReadiness", "ServerMetadata", "ModelMetadata")
OFFLINE = Status(503, "Service Unavailable", StatusFlag.FAILURE)


def server(flavor: str = "py") -> Pipeline:
    models = {
        "your_model": Echo("your_model", "1.0.0"),
        "my-dashed-model": Echo("my-dashed-model", "2.0.0-rc1", b"tag:dashed"),
    }
    service = Service(Router(models), ServerMetadata("interlingua", "0"))
    return Pipeline(service, "rpc", flavored(flavor, PredictOptions()), "your_model")


def over_grpc(pipeline: Pipeline, method: str, message: GrpsMessage) -> GrpsMessage:
    request = GrpcRequest(f"/{GRPC_SERVICE}/{method}", write_message(message), context=HERE)
    answer = asyncio.run(pipeline.handlers["grpc"].serve(request))
    assert answer.code == 0, answer
    return read_message(answer.message)


def over_grpc_beside_brpc(pipeline: Pipeline, method: str, message: GrpsMessage) -> GrpsMessage:
    request = GrpcRequest(f"/{BRPC_SERVICE}/{method}", write_message(message), context=HERE)
    answer = asyncio.run(pipeline.handlers["brpc/grpc"].serve(request))
    assert answer.code == 0, answer
    return read_message(answer.message)


def over_brpc(pipeline: Pipeline, method: str, message: GrpsMessage) -> GrpsMessage:
    request = BrpcRequest(BRPC_SERVICE, method, write_message(message), context=HERE)
    answer = asyncio.run(pipeline.handlers["brpc"].serve(request))
    assert answer.code == 0, answer
    return read_message(answer.message)


WAYS = pytest.mark.parametrize("call", [over_grpc, over_brpc, over_grpc_beside_brpc])
FLAVORED_WAYS = pytest.mark.parametrize(
    ("call", "flavor"),
    [(call, flavor) for call in (over_grpc, over_brpc, over_grpc_beside_brpc) for flavor in ("py", "cpp")],
)


def habits(call: Any, flavor: str) -> str:
    """Whose words are heard: only one of the originals has bRPC."""
    return flavor if call is over_grpc else "cpp"


def text(value: str, model: str = "") -> GrpsMessage:
    return GrpsMessage(Kind.STR_DATA, model, str_data=value)


def pieces(pipeline: Pipeline, *messages: Buffer) -> list[GrpcAnswer]:
    async def asked() -> AsyncIterator[Buffer]:
        for message in messages:
            yield message

    async def ask() -> list[GrpcAnswer]:
        call = GrpcRequest(f"/{GRPC_SERVICE}/{STREAMING}", b"")
        return [answer async for answer in pipeline.handlers["grpc"].stream(call, asked())]

    return asyncio.run(ask())


def test_which_methods_there_are() -> None:
    pipeline = server()
    services = MESSAGES["grps.protos.v1.GrpsMessage"].DESCRIPTOR.file.services_by_name
    offered = {
        name: pipeline.handlers["grpc"].offers(f"/{GRPC_SERVICE}/{name}") for name in (*CALLS, STREAMING)
    }
    assert offered == {**dict.fromkeys(CALLS, "unary"), STREAMING: "stream"}
    assert set(services["GrpsService"].methods_by_name) == set(offered)
    assert pipeline.handlers["grpc"].offers(f"/{BRPC_SERVICE}/Predict") is None
    for service in (BRPC_SERVICE, "GrpsBrpcService"):
        assert all(pipeline.handlers["brpc"].offers(service, name) for name in CALLS)
        assert not pipeline.handlers["brpc"].offers(service, STREAMING)
        assert all(pipeline.handlers["brpc/grpc"].offers(f"/{service}/{name}") == "unary" for name in CALLS)
        assert pipeline.handlers["brpc/grpc"].offers(f"/{service}/{STREAMING}") is None
    assert pipeline.handlers["brpc/grpc"].offers(f"/{GRPC_SERVICE}/Predict") is None
    # PredictByHttp never answers in the original
    assert set(services["GrpsBrpcService"].methods_by_name) == {*CALLS, "PredictByHttp"}


@WAYS
def test_predict(call: Any) -> None:
    pipeline = server()
    assert call(pipeline, "Predict", text("hello")) == GrpsMessage(Kind.STR_DATA, status=OK, str_data="hello")
    octets = call(pipeline, "Predict", GrpsMessage(Kind.BIN_DATA, bin_data=b"\xff"))
    assert (octets.kind, bytes(octets.bin_data)) == (Kind.BIN_DATA, b"\xff")
    flat = np.arange(6, dtype=np.int32)
    asked = GrpsMessage(Kind.GTENSORS, tensors=(GenericTensor("in1", 4, (3, 2), flat),))
    (tensor,) = call(pipeline, "Predict", asked).tensors
    assert (tensor.name, tensor.dtype, tensor.shape) == ("in1", 4, (3, 2))
    assert tensor.flat.tolist() == list(range(6))


@FLAVORED_WAYS
def test_which_model(call: Any, flavor: str) -> None:
    pipeline = server(flavor)
    for model in ("my-dashed-model", "my-dashed-model-2.0.0-rc1"):
        assert call(pipeline, "Predict", text("x", model)).str_data == "tag:dashed"
    for model in ("", "your_model", "your_model-1.0.0"):
        assert call(pipeline, "Predict", text("x", model)).str_data == "x"
    for model in ("nope-1.0.0", "your_model-", "your_model-2", "my-dashed-model-2.0.0"):
        said = {"py": f"Model {model} not found.", "cpp": f"[ExecutorException] Not found model: {model}"}
        status = call(pipeline, "Predict", text("x", model)).status
        assert status == Status(500, said[habits(call, flavor)], StatusFlag.FAILURE)


@WAYS
def test_failures_are_reported_in_band(call: Any) -> None:
    pipeline = server()
    assert call(pipeline, "Predict", text("err:bad")).status == Status(500, "bad", StatusFlag.FAILURE)
    asked = GrpsMessage(Kind.GTENSORS, tensors=(GenericTensor("in2", 8, (3, 3), np.zeros(0)),))
    told = call(pipeline, "Predict", asked).status
    assert (told.code, told.flag) == (500, StatusFlag.FAILURE)
    assert "tensor: in2 data is empty" in told.msg


@WAYS
def test_online_and_offline(call: Any) -> None:
    pipeline, nothing = server(), GrpsMessage()
    assert call(pipeline, "CheckReadiness", nothing).status == OK
    assert call(pipeline, "Offline", nothing).status == OK
    assert call(pipeline, "CheckReadiness", nothing).status == OFFLINE
    assert call(pipeline, "CheckLiveness", nothing).status == OK
    assert call(pipeline, "Predict", text("x")).str_data == "x"
    assert call(pipeline, "Online", nothing).status == OK
    assert call(pipeline, "CheckReadiness", nothing).status == OK


@FLAVORED_WAYS
def test_metadata(call: Any, flavor: str) -> None:
    pipeline = server(flavor)
    told = call(pipeline, "ServerMetadata", GrpsMessage())
    assert told.status == OK
    document = yaml.safe_load(told.str_data)
    assert [model["name"] for model in document["models"]] == ["my-dashed-model", "your_model"]
    assert document["dag"]["nodes"][0]["model"] == "your_model-1.0.0"
    for name in ("your_model", "my-dashed-model"):
        told = call(pipeline, "ModelMetadata", text(name))
        assert yaml.safe_load(told.str_data)["name"] == name
    missing = {"py": "Model not found.", "cpp": "Not Found"}[habits(call, flavor)]
    for name in ("nope", "your_model-1.0.0"):
        assert call(pipeline, "ModelMetadata", text(name)).status == Status(404, missing, StatusFlag.FAILURE)
    empty = call(pipeline, "ModelMetadata", GrpsMessage()).status
    told_empty = {"py": (400, "The model name is empty."), "cpp": (404, "Not Found")}
    assert (empty.code, empty.msg) == told_empty[habits(call, flavor)]


def test_bytes_that_are_no_message() -> None:
    pipeline = server()
    for method in CALLS:
        told = asyncio.run(
            pipeline.handlers["grpc"].serve(GrpcRequest(f"/{GRPC_SERVICE}/{method}", b"\xff\xff"))
        )
        assert told.code == 13
        beside = asyncio.run(
            pipeline.handlers["brpc/grpc"].serve(GrpcRequest(f"/{BRPC_SERVICE}/{method}", b"\xff\xff"))
        )
        assert beside.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        said = asyncio.run(
            pipeline.handlers["brpc"].serve(BrpcRequest(BRPC_SERVICE, method, b"\xff", size=1))
        )
        assert said.code == BrpcStatus.EREQUEST
        assert said.text == "Fail to parse request message, CompressType=none, request_size=1"


def test_a_stream() -> None:
    told = pieces(server(), write_message(text("x")))
    assert [(answer.code, read_message(answer.message).str_data) for answer in told] == [
        (0, "stream data 0"),
        (0, "stream data 1"),
        (0, "stream data 2"),
    ]
    assert all(read_message(answer.message).status == OK for answer in told)
    assert pieces(server(), write_message(text("stream-none"))) == []


def test_a_stream_that_fails() -> None:
    *begun, last = [
        read_message(each.message) for each in pieces(server(), write_message(text("stream-err")))
    ]
    assert [message.str_data for message in begun] == ["one"]
    assert last.status == Status(500, "bad thing mid-stream", StatusFlag.FAILURE)
    (only,) = pieces(server(), write_message(text("x", "nope-1")))
    assert read_message(only.message).status == Status(500, "Model nope-1 not found.", StatusFlag.FAILURE)
    (refused,) = pieces(server(), b"\xff\xff")
    assert refused.code == 13


def beside_brpc(path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return posted(server().handlers["brpc/http"], path, body, **headers)


def posted(http: HttpPipeline, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = HttpRequest("POST", path, "", given, body, context=Context(peer="127.0.0.1"))
    answer = http.head(request) or asyncio.run(http.serve(request))
    return answer.status, {name.lower(): value for name, value in answer.headers}, b"".join(parts_of(answer))


def test_over_http_on_the_same_port() -> None:
    for service in (BRPC_SERVICE, "GrpsBrpcService"):
        status, headers, body = beside_brpc(f"/{service}/Predict", b'{"str_data": "x"}', content_type="a/b")
        assert (status, headers["content-type"]) == (200, "a/b")
        assert body == b'{"status":{"code":200,"msg":"OK","status":"SUCCESS"},"str_data":"x"}'
    status, headers, body = beside_brpc(
        "/GrpsBrpcService/Predict", write_message(text("x")), content_type="application/proto"
    )
    assert (status, read_message(body).str_data) == (200, "x")
    status, headers, body = beside_brpc("/GrpsBrpcService/Predict", b"{bad", content_type="application/json")
    assert (status, headers["x-bd-error-code"]) == (400, "1003")
    status, _, body = beside_brpc("/GrpsBrpcService/Predict", b'{"str_data": "err:bad"}')
    assert (status, json.loads(body)["status"]["code"]) == (200, 500)
    assert beside_brpc("/grps/v1/infer/predict", b"{}")[0] == 404
    status, headers, body = beside_brpc(
        "/GrpsBrpcService/PredictByHttp", b"\x00\xff", content_type="application/octet-stream"
    )
    assert (status, headers["content-type"], body) == (200, "application/octet-stream", b"\x00\xff")


CODED = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("handler", ["http", "brpc/http"])
@pytest.mark.parametrize("service", [BRPC_SERVICE, "GrpsBrpcService"])
@pytest.mark.parametrize("coding", CODED)
def test_a_compressed_body_on_the_path_of_the_stub(handler: str, service: str, coding: str) -> None:
    http, packed = server("cpp").handlers[handler], CODED[coding]
    for method in ("Predict", "PredictByHttp"):
        status, _, body = posted(
            http,
            f"/{service}/{method}",
            packed(b'{"str_data": "x"}'),
            content_type="application/json",
            content_encoding=coding,
        )
        assert (status, json.loads(body)["str_data"]) == (200, "x")
    kind = "application/proto"
    status, _, body = posted(
        http,
        f"/{service}/Predict",
        packed(write_message(text("x"))),
        content_type=kind,
        content_encoding=coding,
    )
    assert (status, read_message(body).str_data) == (200, "x")
    status, _, body = posted(
        http, f"/{service}/Predict", b'{"plain": 1}', content_type="application/json", content_encoding=coding
    )
    assert status == 400 and f"is not {coding} data".encode() in body


@pytest.mark.parametrize("flavor", ["py", "cpp"])
@pytest.mark.parametrize(
    ("path", "coding"),
    [
        ("/grps/v1/infer/predict", "gzip"),
        ("/grps/v1/metadata/model", "gzip"),
        ("/grps/v1/infer/predict", "br"),
        ("/GrpsBrpcService/Predict", "br"),
    ],
)
def test_a_refusal_of_a_compressed_body_names_its_coding(flavor: str, path: str, coding: str) -> None:
    http = server(flavor).handlers["http"]
    body = gzip.compress(b'{"str_data": "your_model"}')
    status, _, told = posted(http, path, body, content_type="application/json", content_encoding=coding)
    assert f"not {coding}" in told.decode()
    assert status != 200 or json.loads(told)["status"]["status"] == "FAILURE"


@pytest.mark.parametrize("flavor", ["py", "cpp"])
def test_the_stub_of_brpc_on_the_port_of_http(flavor: str) -> None:
    """The C++ server's HTTP port serves its bRPC service as brpc does any: by path, JSON or protobuf."""
    pipeline = server(flavor)
    http = pipeline.handlers["http"]
    for service in (BRPC_SERVICE, "GrpsBrpcService"):
        path = f"/{service}/Predict"
        status, headers, body = posted(http, path, b'{"str_data": "x"}', content_type="application/json")
        assert (status, headers["content-type"]) == (200, "application/json")
        written = '{\n "status": {\n  "code": 200,\n  "msg": "OK",\n  "status": "SUCCESS"\n },\n "str_data": "x"\n}\n'
        assert body.decode() == written
        for kind in ("application/proto", "application/x-protobuf"):
            status, headers, body = posted(http, path, write_message(text("x")), content_type=kind)
            assert (status, headers["content-type"], read_message(body).str_data) == (200, kind, "x")
        status, headers, body = posted(
            http, path, write_message(text("err:no")), content_type="application/proto"
        )
        assert (status, read_message(body).status) == (200, Status(500, "no", StatusFlag.FAILURE))
        status, headers, _ = posted(http, path, b"\xff\xff", content_type="application/proto")
        assert (status, headers["x-bd-error-code"]) == (400, "1003")
        assert posted(http, f"/{service}/Nothing", b"{}")[0] == 404
    for method in CALLS:
        status, _, body = posted(http, f"/GrpsBrpcService/{method}", b'{"str_data": "your_model"}')
        assert (status, json.loads(body)["status"]["code"]) == (
            200,
            503 if method == "CheckReadiness" else 200,
        )
