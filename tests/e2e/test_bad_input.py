"""Bad input over real sockets: a clear error in the dialect's own form, and the daemon goes on."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from graphpipe import convert
from tritonclient.grpc import service_pb2

from tests.e2e.daemon import Daemon
from tests.e2e.test_clients import read_answer

INFER = "/v2/models/{}/infer"
GOOD = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}


@pytest.fixture(autouse=True)
def still_serving(examples: Daemon) -> Any:
    yield
    reply = post(examples, INFER.format("identity_fp32"), {"inputs": [GOOD]})
    assert reply.json()["outputs"][0]["data"] == [1.0, 2.0]
    assert examples.process.poll() is None
    assert not [line for line in examples.log if "unexpected error" in line["event"]], examples.log


def post(daemon: Daemon, path: str, body: Any, **headers: str) -> requests.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return requests.post(f"http://{daemon.addresses[0]}{path}", data=data, headers=headers, timeout=20)


OIP_HTTP: list[tuple[str, str, Any, int, str]] = [
    ("wrong size", "identity_fp32", {"inputs": [{**GOOD, "shape": [3]}]}, 400, "INPUT0"),
    ("wrong datatype", "identity_fp32", {"inputs": [{**GOOD, "datatype": "INT32", "data": [1, 2]}]}, 400, "INPUT0"),
    ("no such datatype", "identity_fp32", {"inputs": [{**GOOD, "datatype": "FLOAT"}]}, 400, "FLOAT"),
    ("wrong rank", "identity_fp32", {"inputs": [{**GOOD, "shape": [1, 2]}]}, 400, "INPUT0"),
    ("wrong name", "identity_fp32", {"inputs": [{**GOOD, "name": "Q"}]}, 400, "Q"),
    ("missing input", "simple", {"inputs": []}, 400, "INPUT0"),
    ("unknown output", "identity_fp32", {"inputs": [GOOD], "outputs": [{"name": "Z"}]}, 400, "Z"),
    ("unknown model", "nobody", {"inputs": [GOOD]}, 404, "nobody"),
    ("unknown version", "identity_fp32/versions/9", {"inputs": [GOOD]}, 404, "9"),
    ("huge shape", "identity_fp32", {"inputs": [{**GOOD, "shape": [2**40, 2**40]}]}, 400, "INPUT0"),
    ("2^63", "identity_fp32", {"inputs": [{**GOOD, "shape": [2**63]}]}, 400, "INPUT0"),
    ("negative", "identity_fp32", {"inputs": [{**GOOD, "shape": [-1]}]}, 400, "inputs[0].shape"),
    ("no JSON", "identity_fp32", b"{not json", 400, "JSON"),
    ("invalid UTF-8", "identity_fp32", b'{"id": "\xff\xfe", "inputs": []}', 400, ""),
    ("empty", "identity_fp32", b"", 400, ""),
    ("a list", "identity_fp32", b"[]", 400, ""),
    ("number as id", "identity_fp32", {"id": 7, "inputs": [GOOD]}, 400, "id"),
    ("null data", "identity_fp32", {"inputs": [{**GOOD, "data": [None, 1.0]}]}, 400, "INPUT0"),
    ("deep nesting", "identity_fp32", b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "body", "status", "words"), [case[1:] for case in OIP_HTTP], ids=[c[0] for c in OIP_HTTP]
)
def test_oip_over_http(examples: Daemon, model: str, body: Any, status: int, words: str) -> None:
    reply = post(examples, INFER.format(model), body)
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert words in reply.json()["error"]


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/v2/", "GET", 404), ("/v2/nothing", "GET", 404), ("/v2/models/simple/infer", "GET", 405),
     ("/v2/health/live", "POST", 405), ("/v2/models/simple/versions/x/infer", "POST", 404)],
)  # fmt: skip
def test_oip_paths_and_methods(examples: Daemon, path: str, method: str, status: int) -> None:
    reply = requests.request(method, f"http://{examples.addresses[0]}{path}", timeout=10)
    assert reply.status_code == status and reply.json()["error"]


@pytest.mark.parametrize("length", [b"5", b"100", b"-1", b"x"])
def test_oip_binary_that_does_not_add_up(examples: Daemon, length: bytes) -> None:
    head = {
        "inputs": [
            {"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
        ]
    }
    text = json.dumps(head).encode()
    for tail in (b"", b"1234567", b"123456789"):
        reply = post(
            examples,
            INFER.format("identity_fp32"),
            text + tail,
            **{"Inference-Header-Content-Length": str(len(text))},
        )
        assert reply.status_code == 400 and reply.json()["error"]
    reply = post(
        examples,
        INFER.format("identity_fp32"),
        text + b"12345678",
        **{"Inference-Header-Content-Length": length.decode()},
    )
    assert reply.status_code == 400, reply.text


def grpc_request(**changes: Any) -> Any:
    request = service_pb2.ModelInferRequest(model_name="identity_fp32")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
    request.raw_input_contents.append(struct.pack("<2f", 1, 2))
    for path, value in changes.items():
        owner = request.inputs[0] if path in ("name", "datatype", "shape") else request
        if path in ("shape", "raw_input_contents"):
            del getattr(owner, path)[:]
            getattr(owner, path).extend(value)
        else:
            setattr(owner, path, value)
    return request.SerializeToString()


GRPC_CASES: list[tuple[bytes, grpc.StatusCode]] = [
    (grpc_request(raw_input_contents=[b"1234"]), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(raw_input_contents=[]), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(datatype="INT32"), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(datatype="fp32"), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(name="Q"), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(shape=[2**62, 2**62]), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(shape=[-1]), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(shape=[1, 2]), grpc.StatusCode.INVALID_ARGUMENT),
    (grpc_request(model_name="nobody"), grpc.StatusCode.NOT_FOUND),
    (grpc_request(model_version="9"), grpc.StatusCode.NOT_FOUND),
    (grpc_request(model_version="x"), grpc.StatusCode.INVALID_ARGUMENT),
    (b"\xff\xff\xff", grpc.StatusCode.INTERNAL),
    (grpc_request()[:-3], grpc.StatusCode.INTERNAL),
]


@pytest.mark.parametrize(("message", "code"), GRPC_CASES)
def test_oip_over_grpc(examples: Daemon, message: bytes, code: grpc.StatusCode) -> None:
    with grpc.insecure_channel(examples.addresses[1]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as caught:
            call(message, timeout=10)
    assert caught.value.code() is code
    assert caught.value.details()


def test_unknown_grpc_methods(examples: Daemon) -> None:
    with grpc.insecure_channel(examples.addresses[1]) as channel:
        for method in ("/inference.GRPCInferenceService/Nothing", "/no.Such/Service"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method)(b"", timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def graphpipe_body(array: Any, inputs: list[str], outputs: list[str]) -> bytes:
    return bytes(convert.serialize_infer_request(convert.InferReq("", [array], inputs, outputs)))


FINE = np.ones(3, np.float32)
LOOP = struct.pack("<I", 4) + struct.pack("<i", 0) + struct.pack("<I", 0xFFFFFFFC) * 8
GRAPHPIPE: list[tuple[str, bytes, int, str]] = [
    ("identity_fp32", graphpipe_body(FINE, ["Q"], []), 400, "Could not find input 'Q'"),
    ("identity_fp32", graphpipe_body(FINE, [], ["Z"]), 400, "Could not find output 'Z'"),
    ("identity_fp32", graphpipe_body(FINE, [], [""]), 400, "Could not init output names"),
    ("identity_fp32", graphpipe_body(FINE.astype(np.int16), [], []), 400, "INPUT0"),
    ("identity_fp32", graphpipe_body(FINE[None], [], []), 400, "INPUT0"),
    ("identity_fp32", graphpipe_body(FINE, [], [])[:-9], 400, ""),
    ("identity_fp32", graphpipe_body(FINE, [], [])[:20], 400, ""),
    ("identity_fp32", b"", 400, ""),
    ("identity_fp32", b"\xff" * 64, 400, ""),
    ("identity_fp32", LOOP, 400, ""),
    ("nobody", graphpipe_body(FINE, [], []), 404, "nobody"),
    ("identity_fp32/9", graphpipe_body(FINE, [], []), 404, "9"),
    ("identity_bf16", graphpipe_body(FINE, [], []), 400, "INPUT0"),
]


@pytest.mark.parametrize(("model", "body", "status", "words"), GRAPHPIPE)
def test_graphpipe(examples: Daemon, model: str, body: bytes, status: int, words: str) -> None:
    reply = post(examples, f"/graphpipe/{model}", body)
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert words in reply.text and reply.text.endswith("\n")


def test_oversize_is_refused_before_it_is_read(examples: Daemon) -> None:
    host, port = examples.addresses[3].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n")
        # not a byte of the body is sent, and still the answer comes
        answer = read_answer(connection)
    assert b"100001" in answer and b"max_request_bytes" in answer


def test_a_body_that_grows_past_the_limit_is_refused(examples: Daemon) -> None:
    def endless() -> Any:
        for _ in range(64):
            yield b"x" * 4096

    reply = requests.post(f"http://{examples.addresses[3]}/", data=endless(), timeout=20)
    assert reply.status_code == 413 and "max_request_bytes" in reply.text


def test_a_client_that_disconnects_midway_harms_no_other(examples: Daemon) -> None:
    host, port = examples.addresses[0].split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{"
            )
