"""The requests of the callers: one tensor of FP32 in each dialect, and what its answer must contain."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bare_loop import session
from benchmarks.cases import MODEL, http_request
from benchmarks.wire import BRPC_FRAME, TCP_FRAME, Frames, Http1, Http2, Wire
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.brpc.frame import write_request
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec

GRPC_HEADERS = {"content-type": "application/grpc", "te": "trailers"}


@dataclass(frozen=True)
class ModelUse:
    """A served model, its input and its outputs. Without a ``file`` it is an identity, otherwise ONNX Runtime
    computes the expected last output here."""

    name: str = MODEL
    input: str = "INPUT0"
    outputs: tuple[str, ...] = ("OUTPUT0",)
    file: Path | None = None

    def signature(self) -> Signature:
        """Free dimensions: the servers state their own."""
        shape = (-1, -1)
        return Signature(
            (TensorSpec(self.input, Datatype.FP32, shape),),
            tuple(TensorSpec(name, Datatype.FP32, shape) for name in self.outputs),
        )


@dataclass(frozen=True)
class Request:
    """A POST over HTTP/1.1, a unary call over gRPC, or over bRPC with ``service/method`` as its path, or a
    frame over tcp. ``body`` is the message; the answer must contain ``echoed``."""

    transport: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    echoed: bytes

    def sent(self) -> bytes:
        """The message over gRPC, head and body over HTTP, otherwise the frame."""
        match self.transport:
            case "http":
                return http_request(self.path, dict(self.headers), self.body)
            case "brpc":
                service, method = self.path.split("/")
                return b"".join(write_request(service, method, 1, self.body, headers=self.headers))
            case _:
                return self.body

    def wire(self) -> Wire:
        """A client's connection that sends it."""
        match self.transport:
            case "http":
                return Http1(self.sent())
            case "grpc":
                return Http2(self.path, self.body, self.headers)
            case other:
                return Frames(BRPC_FRAME if other == "brpc" else TCP_FRAME, self.sent())

    def change(self, wire: Wire) -> None:
        """Have a connection of the same kind send it."""
        if isinstance(wire, Http2):
            wire.change(self.path, self.body, self.headers)
        elif isinstance(wire, Http1 | Frames):
            wire.change(self.sent())

    def entity(self) -> bytes:
        """The body as it goes over HTTP: over gRPC with the prefix of its message."""
        return struct.pack(">BI", 0, len(self.body)) + self.body if self.transport == "grpc" else self.body


def request(
    dialect: str, transport: str, size: int, model: ModelUse | None = None, name: str = ""
) -> Request:
    """An inference request with ``size`` bytes of floats, and the id ``name``."""
    model = model or ModelUse()
    # numbers of few digits, which every JSON encoder prints alike
    values = np.random.default_rng(0).integers(0, 1000, (1, size // 4)).astype(np.float32) / 4
    tensor = Tensor(model.input, Datatype.FP32, values.shape, memoryview(values.tobytes()))
    # a framed message names no model
    ask = InferRequest("" if transport == "tcp" else model.name, (tensor,), id=name)
    call: Any
    call, _ = DIALECTS[dialect].bindings[transport].calls[Operation.INFER].encode(ask, model.signature())
    echoed = values.tobytes()
    if model.file is not None:
        echoed = session(str(model.file)).run(None, {model.input: values})[-1].tobytes()
    if transport == "grpc":
        return Request(transport, call.method, GRPC_HEADERS, bytes(call.whole), echoed)
    if transport == "brpc":
        return Request(transport, f"{call.service}/{call.method}", {}, bytes(call.message), echoed)
    if transport == "tcp":
        return Request(transport, "", {}, b"".join(call.parts), echoed)
    path = f"{call.path}?{call.query}" if call.query else call.path
    if dialect == "graphpipe":
        path = f"/graphpipe/{model.name}"
    body = b"".join(call.parts)
    if dialect in ("grps", "tfserving"):
        echoed = numbers(body)
    return Request(transport, path, call.headers, body, echoed)


def numbers(body: bytes) -> bytes:
    """Those of the last list of the JSON ``body``, as text."""
    start = body.rindex(b"[")
    return body[start : body.index(b"]", start)]
