"""One bad input over each transport, and the answer to it as a status and a text."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from interlingua.schemas.grps import MESSAGES as GRPS
from interlingua.schemas.trtis import MESSAGES as TRTIS
from tests.e2e.daemon import Daemon
from tests.protocols.graphpipe.oracle import read_response
from tests.standins.brpc_frames import fields, request_frame

TIMEOUT_SECS = 20
SHOWN = 300
"""The longest text in the table; of a longer one the table has the start and the length."""

TRANSPORTS = ("http", "grpc", "brpc", "tcp")

_COUNTED = re.compile(r"request_id: \d+")
_SERVER = re.compile(r"^\[[0-9a-f]{32}\]")
"""The prefix of bRPC errors: the identity of the server."""


@dataclass(frozen=True)
class Answer:
    """``status`` is that of the transport, for gRPC and bRPC with the code in the message, if there is one."""

    status: str
    text: str


class Input(Protocol):
    """A bad input."""

    @property
    def transport(self) -> str: ...

    def send(self, connection: Any) -> Answer:
        """Send it over a connection of its transport, and read the answer."""


def connections(daemon: Daemon) -> dict[str, Any]:
    """One connection to each of the first listeners, whose transports are ``TRANSPORTS``."""
    http_, grpc_, brpc, tcp = daemon.addresses[: len(TRANSPORTS)]
    return {
        "http": http.client.HTTPConnection(http_, timeout=TIMEOUT_SECS),
        "grpc": grpc.insecure_channel(grpc_),
        "brpc": _Stream(brpc),
        "tcp": _Stream(tcp),
    }


def shown(text: str) -> str:
    """A text as the table has it: without the count of requests and the server's identity, not overlong."""
    text = _SERVER.sub("[ID]", _COUNTED.sub("request_id: N", text))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


@dataclass(frozen=True)
class Http:
    path: str
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    transport = "http"

    def send(self, connection: http.client.HTTPConnection) -> Answer:
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        connection.request(self.method, self.path, body, dict(self.headers))
        reply = connection.getresponse()
        text = reply.read().decode(errors="replace")
        return Answer(str(reply.status), reply.headers.get("NV-Status", text))


@dataclass(frozen=True)
class Grpc:
    method: str
    message: Any = b""
    metadata: tuple[tuple[str, str], ...] = ()
    transport = "grpc"

    def send(self, connection: grpc.Channel) -> Answer:
        message = self.message if isinstance(self.message, bytes) else self.message.SerializeToString()
        streaming = "Stream" in self.method
        call = (connection.stream_stream if streaming else connection.unary_unary)(self.method)
        sent = iter((message,)) if streaming else message
        try:
            reply = call(sent, timeout=TIMEOUT_SECS, metadata=self.metadata)
            reply = b"".join(reply) if streaming else reply
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details())
        return Answer("OK", _in_band(self.method, reply))


@dataclass(frozen=True)
class Brpc:
    method: str
    message: Any = b""
    options: Mapping[str, Any] = field(default_factory=dict)
    transport = "brpc"

    def send(self, connection: _Stream) -> Answer:
        message = self.message if isinstance(self.message, bytes) else self.message.SerializeToString()
        connection.send(request_frame(self.method, message, **self.options))
        _, size, meta_size = (connection.read(4), connection.number("big"), connection.number("big"))
        meta, payload = connection.read(meta_size), connection.read(size - meta_size)
        response = fields(bytes(fields(meta).get(2, [b""])[0]))  # type: ignore[arg-type]
        code = response.get(1, [0])[0]
        if code:
            return Answer(str(code), bytes(response[2][0]).decode())  # type: ignore[arg-type]
        return Answer("0", _in_band(f"/{self.method}", payload))


@dataclass(frozen=True)
class Tcp:
    message: bytes
    transport = "tcp"

    def send(self, connection: _Stream) -> Answer:
        connection.send(len(self.message).to_bytes(4, "little") + self.message)
        reply = connection.read(connection.number("little"))
        return Answer(
            "in band",
            "; ".join(f"{code}: {text.decode()}" for code, text in read_response(reply, strict=False)[1]),
        )


class _Stream:
    """A socket, opened again for every input: some inputs end their connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def send(self, data: bytes) -> None:
        self.close()
        host, _, port = self._address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECS)
        self._socket.sendall(data)

    def read(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError(data)
            data += piece
        return data

    def number(self, order: Any) -> int:
        return int.from_bytes(self.read(4), order)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _in_band(method: str, reply: bytes) -> str:
    """The status in a message whose gRPC or bRPC status is OK."""
    if method.startswith("/nvidia.inferenceserver"):
        kind = f"{method.rpartition('/')[2]}Response"
        status: Any = TRTIS[f"nvidia.inferenceserver.{kind.replace('StreamInfer', 'Infer')}"].FromString(
            reply
        )
        status = status.request_status
        code = status.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number[status.code].name
        return f"{code}: {status.msg}"
    if method.startswith("/inference."):
        # an answer of a stream: the error, then the answer without tensors
        return bytes(fields(reply).get(1, [b""])[0]).decode()  # type: ignore[arg-type]
    status = GRPS["grps.protos.v1.GrpsMessage"].FromString(reply).status  # type: ignore[attr-defined]
    return f"{status.code}: {status.msg}"
