"""A request over HTTP is the same in whatever pieces it comes: every dialect reads a body that was put together
as it reads one that came at once."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec, pack_bytes
from tests.e2e.daemon import Daemon

FLOATS = np.random.default_rng(0).random(50_000, np.float32)
FP32 = Tensor("INPUT0", Datatype.FP32, FLOATS.shape, memoryview(FLOATS.tobytes()))
OUTPUTS = (TensorSpec("OUTPUT0", Datatype.FP32, (-1,)),)
JSON = {"Content-Type": "application/json"}
OIP = "/v2/models/identity_fp32/infer"

Asked = tuple[str, Mapping[str, str], bytes]


def called(dialect: str, tensor: Tensor, model: str = "identity_fp32") -> Asked:
    """A request as the client's half of ``dialect`` writes it."""
    specs = (TensorSpec(tensor.name, tensor.datatype, (-1,)),)
    request = InferRequest(model, (tensor,))
    call, _ = (
        DIALECTS[dialect].bindings["http"].calls[Operation.INFER].encode(request, Signature(specs, OUTPUTS))
    )
    path = f"/graphpipe/{model}" if dialect == "graphpipe" else call.path
    return path, call.headers, b"".join(call.parts)


def numbers(count: int) -> bytes:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count], "data": FLOATS[:count].tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


ASKED: dict[str, Asked] = {
    "OIP, JSON": (OIP, JSON, numbers(16)),
    "OIP, long JSON": (OIP, JSON, numbers(50_000)),
    "OIP, compressed": (OIP, {**JSON, "Content-Encoding": "gzip"}, gzip.compress(numbers(5000))),
    "OIP, compressed answer": (OIP, {**JSON, "Accept-Encoding": "gzip"}, numbers(5000)),
    "OIP, binary": called("oip", FP32),
    "OIP, no JSON": (OIP, JSON, numbers(5000)[:-1]),
    "OIP, no UTF-8": (OIP, JSON, numbers(16)[:-1] + b"\xff}"),
    "OIP, index": ("/v2/repository/index", {}, b'{"ready": true}'),
    "TRTIS": called("trtis", FP32),
    "GraphPipe": called("graphpipe", FP32),
    "GraphPipe, no message": ("/graphpipe/identity_fp32", {}, bytes(100)),
    "grps": called("grps", FP32),
    "grps, bytes": called(
        "grps", Tensor("INPUT0", Datatype.BYTES, (2,), pack_bytes([b"a", "é".encode()])), "identity_bytes"
    ),
    "grps, no JSON": ("/grps/v1/infer/predict", JSON, b'{"str_data": "a'),
}


def ask(daemon: Daemon, asked: Asked, pieces: Sequence[bytes], framing: str) -> tuple[int, bytes]:
    """Status and body of the answer to ``pieces`` of a body."""
    path, headers, _ = asked
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    host, port = daemon.addresses[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{lines}{framing}\r\n\r\n".encode())
        for piece in pieces:
            time.sleep(0.005)
            connection.sendall(piece)
        with http.client.HTTPResponse(connection) as reply:
            reply.begin()
            return reply.status, reply.read()


@pytest.mark.parametrize("name", ASKED)
def test_in_any_pieces(examples: Daemon, name: str) -> None:
    asked = ASKED[name]
    body = asked[2]
    length = f"Content-Length: {len(body)}"
    whole = ask(examples, asked, [body], length)
    third = len(body) // 3
    parts = [body[:1], body[1:third], body[third:]]
    assert ask(examples, asked, parts, length) == whole
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part]
    assert ask(examples, asked, [*chunks, b"0\r\n\r\n"], "Transfer-Encoding: chunked") == whole
    assert (whole[0] == 200) is (" no " not in name)
