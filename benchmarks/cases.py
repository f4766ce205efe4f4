"""What is measured: one request each, as the client would send it, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpCall
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec

MODEL = "identity_fp32"
OIP_METHOD = "/inference.GRPCInferenceService/ModelInfer"
TRTIS_METHOD = "/nvidia.inferenceserver.GRPCService/Infer"


def over(transport: str) -> list[str]:
    """Every dialect that ``transport`` carries."""
    return [name for name, dialect in DIALECTS.items() if transport in dialect.bindings]


CONFIG: dict[str, Any] = {
    "server": {"log_format": "json", "drain_secs": 0.0},
    "listeners": [
        {"listen": "127.0.0.1:0", "transport": "http", "dialects": over("http")},
        {"listen": "127.0.0.1:0", "transport": "grpc", "dialects": over("grpc")},
        {"listen": "127.0.0.1:0", "transport": "tcp", "default_model": MODEL},
    ],
    "models": {
        MODEL: {
            "backend": "identity",
            "signature": {
                "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, -1]}],
                "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, -1]}],
            },
        }
    },
}

_SHAPE = (-1, -1)
_SIGNATURE = Signature(
    (TensorSpec("INPUT0", Datatype.FP32, _SHAPE),), (TensorSpec("OUTPUT0", Datatype.FP32, _SHAPE),)
)


@dataclass(frozen=True)
class Case:
    """One row. ``floor`` is the kind of bare server beside it; ``count`` how many requests make a round;
    ``target`` the ratio that the daemon is to stay under; ``method`` what is called over gRPC."""

    name: str
    floor: str
    size: int
    count: int
    target: float
    build: Callable[[int], tuple[bytes, bytes]]
    method: str = ""

    @property
    def transport(self) -> str:
        """What carries it: http, grpc or tcp."""
        return self.floor if self.floor in ("grpc", "tcp") else "http"

    def request(self) -> tuple[bytes, bytes]:
        """What to send (over HTTP head and body, over gRPC the message, over tcp its size and the message),
        and what its answer has to contain."""
        return self.build(self.size)


def _infer(size: int) -> tuple[InferRequest, bytes]:
    payload = np.random.default_rng(0).random(size // 4, np.float32).tobytes()
    tensor = Tensor("INPUT0", Datatype.FP32, (1, size // 4), memoryview(payload))
    return InferRequest(MODEL, (tensor,)), payload


def http_request(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """A POST as it goes over the wire, head and body."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    return head.encode() + body


def _oip_binary(size: int) -> tuple[bytes, bytes]:
    request, payload = _infer(size)
    call, _ = DIALECTS["oip"].bindings["http"].calls[Operation.INFER].encode(request, _SIGNATURE)
    return http_request(call.path, dict(call.headers), b"".join(call.parts)), payload


def _oip_json(size: int) -> tuple[bytes, bytes]:
    values = np.random.default_rng(0).random((1, size // 4), np.float32)
    tensor = {"name": "INPUT0", "shape": values.shape, "datatype": "FP32", "data": values}
    body = orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)
    return http_request(f"/v2/models/{MODEL}/infer", {"Content-Type": "application/json"}, body), b'"data":['


def _oip_raw(size: int) -> tuple[bytes, bytes]:
    request, payload = _infer(size)
    call, _ = DIALECTS["oip"].bindings["grpc"].calls[Operation.INFER].encode(request, _SIGNATURE)
    return bytes(call.whole), payload


def _graphpipe(size: int) -> tuple[bytes, bytes]:
    request, payload = _infer(size)
    call: HttpCall
    call, _ = DIALECTS["graphpipe"].bindings["http"].calls[Operation.INFER].encode(request, _SIGNATURE)
    return http_request(f"/graphpipe/{MODEL}", dict(call.headers), b"".join(call.parts)), payload


def _graphpipe_tcp(size: int) -> tuple[bytes, bytes]:
    request, payload = _infer(size)
    request.model = ""
    call, _ = DIALECTS["graphpipe"].bindings["tcp"].calls[Operation.INFER].encode(request, _SIGNATURE)
    return b"".join(call.parts), payload


def _trtis_http(size: int) -> tuple[bytes, bytes]:
    request, payload = _infer(size)
    call: HttpCall
    call, _ = DIALECTS["trtis"].bindings["http"].calls[Operation.INFER].encode(request, _SIGNATURE)
    return http_request(f"{call.path}?{call.query}", dict(call.headers), b"".join(call.parts)), payload


def _trtis_grpc(size: int) -> tuple[bytes, bytes]:
    request, payload = _infer(size)
    call, _ = DIALECTS["trtis"].bindings["grpc"].calls[Operation.INFER].encode(request, _SIGNATURE)
    return bytes(call.whole), payload


def tfserving_grpc(size: int) -> tuple[bytes, bytes]:
    """A PredictRequest, with its tensor as bytes."""
    request, payload = _infer(size)
    call, _ = DIALECTS["tfserving"].bindings["grpc"].calls[Operation.INFER].encode(request, _SIGNATURE)
    return bytes(call.whole), payload


_HTTP_SIZES = ((64, 1000, 1.5), (64 << 10, 300, 1.5), (4 << 20, 30, 0.8))
_TRTIS_SIZES = ((64, 1000, 1.7), (64 << 10, 300, 1.7), (4 << 20, 30, 0.8))
"""Over HTTP version 1 says everything twice, in headers of text and in the body: it may cost more."""

_GRPC_SIZES = ((64, 1000, 0.9), (64 << 10, 300, 0.9), (4 << 20, 30, 1.1))
"""The bare server is grpcio's, whose transport costs more than all that the daemon does."""

_TCP_SIZES = ((64, 1000, 10.0), (64 << 10, 300, 6.0), (4 << 20, 30, 1.5))
"""A bare stream costs next to nothing and reads nothing of a message: beside it stands all that the daemon
does."""

CASES = (
    Case("OIP HTTP JSON, 16 floats", "json", 64, 1000, 1.8, _oip_json),
    Case("OIP HTTP JSON, 16k floats", "json", 64 << 10, 100, 1.5, _oip_json),
    *(Case("OIP HTTP binary", "http", *row, _oip_binary) for row in _HTTP_SIZES),
    *(Case("OIP gRPC raw", "grpc", *row, _oip_raw, OIP_METHOD) for row in _GRPC_SIZES),
    *(Case("TRTIS HTTP", "http", *row, _trtis_http) for row in _TRTIS_SIZES),
    *(Case("TRTIS gRPC", "grpc", *row, _trtis_grpc, TRTIS_METHOD) for row in _GRPC_SIZES),
    *(Case("GraphPipe HTTP", "http", *row, _graphpipe) for row in _HTTP_SIZES),
    *(Case("GraphPipe tcp", "tcp", *row, _graphpipe_tcp) for row in _TCP_SIZES),
)
