"""Recorded requests through the pipeline of a grps listener, and what tells our answer from the recorded one.

No network. A difference is named by its kind: ``status`` of HTTP, ``type`` of the content, ``code`` in the
message, ``body``. The words of an error are each server's own; its code and its members are compared.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from interlingua.protocols.dialect import Binding
from interlingua.protocols.grps import dialect
from interlingua.protocols.grps.options import PredictOptions, StreamingControl
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.runtime.target import Target
from interlingua.schemas import ServerMetadata
from interlingua.translator.serving.operations import EVERY_DIALECT, Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router

GOLDEN = Path(__file__).parent.parent / "golden" / "grps"

OPTIONS: Mapping[str, PredictOptions] = {
    "standard": PredictOptions(),
    "streaming": PredictOptions(),
    "tensor_converter": PredictOptions(),
    "brpc_port_http": PredictOptions(),
    "custom_body_false_header_ctrl": PredictOptions(
        "/custom_predict", False, StreamingControl("header_param", "X-Stream", "text/event-stream")
    ),
    "custom_body_true_body_ctrl": PredictOptions(
        "/custom_predict", True, StreamingControl("body_param", "stream", "text/event-stream")
    ),
}
"""The settings of the recorded servers, by group."""


@dataclass(frozen=True)
class Reply:
    """An answer as a client has it; ``chunks`` None is a body that was not streamed, ``body`` None one that
    was not recorded."""

    status: int
    content_type: str
    body: bytes | None
    chunks: tuple[bytes, ...] | None = None


@dataclass(frozen=True)
class Recording:
    """One exchange with one of the servers; ``reply`` None is a server that crashed."""

    group: str
    name: str
    flavor: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    reply: Reply | None

    def __str__(self) -> str:
        return f"{self.flavor}:{self.name}"

    def request(self) -> HttpRequest:
        path, _, query = self.target.partition("?")
        return HttpRequest(self.method, path, query, dict(self.headers), memoryview(self.body))


def recordings() -> list[Recording]:
    """Every exchange, in the order in which they were made."""
    groups = json.loads((GOLDEN / "http_exchanges.json").read_bytes())
    found = []
    for group, exchanges in groups.items():
        for name, exchange in exchanges.items():
            method, target, _ = exchange["request"]["line"].split(" ")
            headers = {key.lower(): value for key, value in exchange["request"]["headers"]}
            body = _bytes(exchange["request"]["body"])
            assert body is not None
            for flavor in ("py", "cpp"):
                if flavor in exchange:
                    told = _reply(exchange[flavor])
                    found.append(Recording(group, name, flavor, method, target, headers, body, told))
    return found


def _bytes(recorded: Mapping[str, str]) -> bytes | None:
    if "base64" in recorded:
        return base64.b64decode(recorded["base64"])
    return recorded["text"].encode() if "text" in recorded else None


def _reply(recorded: Any) -> Reply | None:
    if isinstance(recorded, str):
        return None
    headers = {name.lower(): value for name, value in recorded["headers"]}
    body = _bytes(recorded["body"])
    chunks = None
    if headers.get("transfer-encoding") == "chunked" and body is not None:
        chunks = _chunks(body)
        body = b"".join(chunks)
    return Reply(int(recorded["status_line"].split(" ")[1]), headers.get("content-type", ""), body, chunks)


def _chunks(body: bytes) -> tuple[bytes, ...]:
    found = []
    while True:
        size, separator, body = body.partition(b"\r\n")
        try:
            length = int(size, 16)
        except ValueError:  # a traceback was cut out of it
            return (size + separator + body,)
        if not length:
            return tuple(found)
        found.append(body[:length])
        body = body[length + 2 :]


def flavored(flavor: str, options: PredictOptions) -> list[Binding]:
    return [binding.flavored(flavor) for binding in dialect(options).bindings.values()]


def pipeline(models: Mapping[str, Target], flavor: str, options: PredictOptions, default: str) -> Pipeline:
    """The pipeline of a grps listener; the server is offline, as the originals are at first."""
    service = Service(Router(models), ServerMetadata("interlingua", "0"), offline=frozenset({EVERY_DIALECT}))
    return Pipeline(service, "replay", flavored(flavor, options), default)


def send(server: Pipeline, request: HttpRequest, over_brpc: bool = False) -> Reply:
    """The answer of ``server`` as a client has it."""
    http = server.handlers["brpc/http"] if over_brpc else server.handlers["http"]
    request.context.peer = "127.0.0.1"

    async def ask() -> Reply:
        answer: HttpAnswer = http.head(request) or await http.serve(request)
        headers = {name.lower(): value for name, value in answer.headers}
        content_type = headers.get("content-type", "")
        if isinstance(answer.parts, AsyncIterator):
            chunks = tuple([bytes(part) async for part in answer.parts if len(part)])
            return Reply(answer.status, content_type, b"".join(chunks), chunks)
        body = b"" if request.method == "HEAD" else b"".join(answer.parts)
        return Reply(answer.status, content_type, body)

    return asyncio.run(ask())


def differences(recording: Recording, ours: Reply) -> set[str]:
    """What tells ``ours`` from the recorded answer."""
    theirs = recording.reply
    assert theirs is not None
    found = set()
    if ours.status != theirs.status:
        found.add("status")
    if ours.content_type != theirs.content_type:
        found.add("type")
    if (ours.chunks is None) != (theirs.chunks is None):
        found.add("chunks")
    if (
        theirs.body is None
        or ours.body is None
        or (theirs.status == 500 and theirs.content_type == "text/plain")
    ):
        return found
    said, told = ([_read(piece) for piece in each.chunks or (each.body,)] for each in (theirs, ours))
    if [_code(each) for each in said] != [_code(each) for each in told]:
        found.add("code")
    elif [_comparable(each) for each in said] != [_comparable(each) for each in told]:
        found.add("body")
    return found


def layout(piece: bytes) -> bytes:
    """What stands around the values of a piece in JSON: its indentation and its end."""
    lines = piece.split(b"\n")
    return b"\n".join(line[: len(line) - len(line.lstrip())] for line in lines[:3]) + b"|" + piece[-2:]


def _read(piece: bytes | None) -> Any:
    """A piece as JSON, else as bytes; pages in HTML are each server's own."""
    assert piece is not None
    if piece.startswith(b"<!doctype"):
        return "page"
    try:
        return json.loads(piece) if piece.startswith(b"{") else piece
    except ValueError:
        return piece


def _code(piece: Any) -> Any:
    return (piece["status"].get("code"), piece["status"].get("status")) if _is_message(piece) else None


def _is_message(piece: Any) -> bool:
    return isinstance(piece, dict) and isinstance(piece.get("status"), dict)


def _comparable(piece: Any) -> Any:
    """A piece without what each server has of its own: the words of errors, what it is configured with,
    and its numbers."""
    if isinstance(piece, dict) and "label" in piece:
        return piece["label"], [at for at, _ in piece["data"]]
    if isinstance(piece, bytes) and b"[E10" in piece:
        return piece[piece.index(b"[E10") :][:7]
    if not _is_message(piece):
        return piece
    status = dict(piece["status"])
    if status.get("status") == "FAILURE":
        assert status.pop("msg")
    found = {**piece, "status": status}
    if "inferer_type:" in piece.get("str_data", ""):
        document = yaml.safe_load(piece["str_data"])
        found["str_data"] = sorted(document), sorted(document.get("models", [{}])[0])
    return json.dumps(found)
