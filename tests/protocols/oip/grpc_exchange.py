"""Both ends of a gRPC exchange without a network, and the recorded exchanges of real servers."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import orjson

from interlingua.protocols.dialect import Opened
from interlingua.protocols.oip import DIALECT
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import InferenceError, InferRequest, Operation, Signature

GOLDEN = Path(__file__).parents[2] / "golden" / "oip"
SERVICE = "/inference.GRPCInferenceService/"
ENDPOINTS = {endpoint.method: endpoint for endpoint in DIALECT.bindings["grpc"].endpoints}
CALLS = DIALECT.bindings["grpc"].calls
NOTHING = Signature((), ())
RPCS = {
    "ServerLive": Operation.LIVE,
    "ServerReady": Operation.READY,
    "ModelReady": Operation.MODEL_READY,
    "ServerMetadata": Operation.SERVER_METADATA,
    "ModelMetadata": Operation.MODEL_METADATA,
    "ModelInfer": Operation.INFER,
}


def opened(rpc: str, message: bytes) -> Opened[GrpcAnswer]:
    """A request with ``message`` as the endpoint of ``rpc`` opens it."""
    method = rpc if rpc.startswith("/") else SERVICE + rpc
    return ENDPOINTS[method].open(GrpcRequest(method, message))


def inferred(message: bytes) -> tuple[InferRequest, Any]:
    """The IR request and the reply form of a ModelInfer message."""
    found = opened("ModelInfer", message)
    assert found.action.decode is not None
    return found.action.decode(found, NOTHING)


def arriving(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """A client's request, opened by the endpoint that its method finds."""
    return ENDPOINTS[request.method].open(request)


def failed(error: InferenceError, rpc: str = "ModelInfer") -> GrpcAnswer:
    """``error`` as the endpoint of ``rpc`` writes it."""
    method = SERVICE + rpc
    return ENDPOINTS[method].fail(GrpcRequest(method, b""), None, error)


@dataclass(frozen=True)
class Recording:
    """One recorded unary call. ``answer`` is what a gRPC client receives; ``told`` is the same answer
    as JSON. The ``request`` is None where it was sent in a form that is not kept."""

    server: str
    name: str
    rpc: str
    request: bytes | None
    answer: GrpcAnswer
    told: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.server}-{self.name}"


def recordings(*servers: str) -> list[Recording]:
    """The recorded calls of the methods that we have."""
    found: list[Recording] = []
    for server in servers:
        for entry in orjson.loads((GOLDEN / f"{server}_grpc.json").read_bytes()):
            rpc = entry["rpc"].rsplit("/", 1)[-1]
            if rpc not in RPCS or "requests" in entry:
                continue
            answer = GrpcAnswer(
                base64.b64decode(entry.get("response_bytes", "")),
                grpc.StatusCode[entry["code"]].value[0],
                entry.get("details", ""),
            )
            request = base64.b64decode(entry["request_bytes"]) if "request_bytes" in entry else None
            found.append(Recording(server, entry["name"], rpc, request, answer, entry.get("response", {})))
    return found
