"""The recorded OIP exchanges of real servers, as what a transport would hand over and send.

A recording belongs to an operation; those that this program does not have yet, and those whose answer
depends on what was controlled before, are told by :func:`later`, which looks at the request alone and
never at an answer.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import orjson

from interlingua.protocols.oip.grpc_messages import SERVICE
from interlingua.protocols.wire import GrpcAnswer, HttpRequest
from interlingua.schemas.oip import MESSAGES

GOLDEN = Path(__file__).parent.parent / "golden" / "oip"
HEADER_LENGTH = "inference-header-content-length"

RPCS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")

_CONTROL_RPCS = re.compile("ModelConfig|ModelStatistics|Repository|SharedMemory|TraceSetting|LogSettings")
_CONTROL_PATHS = re.compile(
    r"/v2/(repository|trace|logging|systemsharedmemory|cudasharedmemory|models/stats)(/|$)"
    r"|/v2/models/[^/]+(/versions/[^/]+)?/(config|stats|trace)(/|$)"
)
_LATER_PATHS = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/(generate|generate_stream|infer_stream)(/|$)")
_MODEL = re.compile(r"/v2/models/([^/]+)")


@dataclass(frozen=True)
class Reply:
    """A recorded HTTP answer; ``headers`` by lower-case name, ``body`` without its content coding."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class HttpRecording:
    """One recorded HTTP exchange."""

    server: str
    name: str
    method: str
    path: str
    query: str
    version: str
    headers: dict[str, str]
    body: bytes
    reply: Reply | None

    def __str__(self) -> str:
        return f"{self.server}-{self.name}"

    def request(self) -> HttpRequest:
        """The request as a transport hands it over."""
        return HttpRequest(self.method, self.path, self.query, headers=self.headers, body=self.body)

    def later(self, models: Collection[str]) -> str:
        """What is missing to answer the request, empty where everything is there. ``models`` are those
        that this program cannot load."""
        if len(self.body) < int(self.headers.get("content-length", 0)):
            return "rest of the request"
        if self.version == "HTTP/1.1" and "host" not in self.headers:
            return "a host, for the transport"
        if _CONTROL_PATHS.match(self.path):
            return "control"
        if _LATER_PATHS.match(self.path):
            return "operation"
        named = _MODEL.match(self.path)
        if named and named[1] in models:
            return "model"
        if b'"shared_memory_region"' in self.body:
            return "shared memory"
        return ""


@dataclass(frozen=True)
class GrpcRecording:
    """One recorded unary call. ``request`` is None where its bytes were not kept."""

    server: str
    name: str
    method: str
    request: bytes | None
    reply: GrpcAnswer

    def __str__(self) -> str:
        return f"{self.server}-{self.name}"

    @property
    def rpc(self) -> str:
        return self.method.rpartition("/")[2]

    def later(self, models: Collection[str]) -> str:
        """As :meth:`HttpRecording.later`."""
        if _CONTROL_RPCS.search(self.rpc):
            return "control"
        if self.rpc not in RPCS:
            return "operation"
        if self.request is None:
            return "request not kept"
        if self.rpc != "ModelInfer":
            return ""
        message: Any = MESSAGES["inference.ModelInferRequest"].FromString(self.request)
        if message.model_name in models:
            return "model"
        for tensor in [*message.inputs, *message.outputs]:
            if "shared_memory_region" in tensor.parameters:
                return "shared memory"
        return ""


def http_recordings(server: str) -> list[HttpRecording]:
    """The HTTP exchanges of ``server``, in the recorded order."""
    return [_http(server, entry) for entry in orjson.loads((GOLDEN / f"{server}_http.json").read_bytes())]


def grpc_recordings(server: str) -> list[GrpcRecording]:
    """The unary gRPC calls of ``server``, in the recorded order."""
    entries = orjson.loads((GOLDEN / f"{server}_grpc.json").read_bytes())
    return [_grpc(server, entry) for entry in entries if "requests" not in entry]


def _http(server: str, entry: dict[str, Any]) -> HttpRecording:
    head, _, body = _bytes(entry["request"]).partition(b"\r\n\r\n")
    line, headers = _head(head)
    method, target, version = line.split(" ")
    path, _, query = target.partition("?")
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return HttpRecording(server, entry["name"], method, path, query, version, headers, body, _reply(entry))


def _reply(entry: dict[str, Any]) -> Reply | None:
    """The recorded answer; None where the server gave none."""
    if not entry["status"]:
        return None
    status, body = entry["status"], _bytes(entry["body"] or {"text": ""})
    headers = received(entry["headers"])
    if status.split(" ")[1] == "100":
        # what follows an interim answer was recorded as its body
        head, _, body = body.partition(b"\r\n\r\n")
        status, headers = _head(head)
    coding = headers.get("content-encoding")
    if coding:
        body = zlib.decompress(body, {"gzip": 31, "deflate": 15}[coding])
    elif headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return Reply(int(status.split(" ")[1]), headers, body)


def _grpc(server: str, entry: dict[str, Any]) -> GrpcRecording:
    rpc = entry["rpc"]
    return GrpcRecording(
        server,
        entry["name"],
        rpc if rpc.startswith("/") else SERVICE + rpc,
        base64.b64decode(entry["request_bytes"]) if "request_bytes" in entry else None,
        GrpcAnswer(
            base64.b64decode(entry.get("response_bytes") or ""),
            grpc.StatusCode[entry["code"]].value[0],
            entry.get("details", ""),
        ),
    )


def _bytes(part: dict[str, Any]) -> bytes:
    return part["text"].encode() if "text" in part else base64.b64decode(part["b64"])


def _head(head: bytes) -> tuple[str, dict[str, str]]:
    line, *fields = head.decode("latin-1").split("\r\n")
    return line, received(field.split(":", 1) for field in fields)


def received(fields: Iterable[Iterable[str]]) -> dict[str, str]:
    """Header fields as a transport hands them over: found in lower case."""
    return {name.lower(): value.strip() for name, value in fields}


def _unchunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not length:
            break
        parts.append(body[:length])
        body = body[length + 2 :]
    return b"".join(parts)
