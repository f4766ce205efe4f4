"""Recorded requests through the pipeline of a listener, and what tells our answer from the recorded one.

No network: a recording is handed to the pipeline as a transport would. A difference is named by its
kind (``status``, ``body``, …), so that a test can say which kinds it expects.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from interlingua.protocols.content_coding import inflate
from interlingua.protocols.oip import DIALECT
from interlingua.protocols.oip.grpc_messages import SERVICE
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpAnswer, HttpRequest, parts_of
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.target import Target
from interlingua.schemas import Context, ServerMetadata
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.conformance.oip_recordings import HEADER_LENGTH, GrpcRecording, HttpRecording, Reply, received

UNFORESEEN = "internal error; the server's log has the details"
"""What a caller is told of a fault of ours."""

_TEXTS = re.compile(
    r"unexpected shape for input '.*' for model '.*'\. Expected \[.*\], got \[.*\]\. "
    r"|input byte size mismatch for input '.*' for model '.*'\. Expected \d+, got \d+"
    r"|expected (?:\d+ inputs|number of inputs between \d+ and \d+) but got \d+ inputs "
    r"for model '.*'\. Got input\(s\) \[.*\], but missing required input\(s\) \[.*\]\. "
    r"Please provide all required input\(s\)\."
    r"|inference input '.*' data-type is '[A-Z0-9]+', but model '.*' expects '.*'"
    r"|unexpected inference output '.*' for model '.*'"
)
"""The error texts that Triton's users match on."""


_LOOP = asyncio.Runner()
"""One loop for all requests, as a server has it: what waits for its turn is woken on the loop of before."""
atexit.register(_LOOP.close)


def pipeline(models: Mapping[str, Target], failed: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of an OIP listener that serves ``models``, those in ``failed`` excepted."""
    catalog = ModelCatalog(models, {name: LoadError(reason) for name, reason in (failed or {}).items()})
    metadata = ServerMetadata("interlingua", "0", ("binary_tensor_data",))
    service = Service(Router(catalog), metadata, frozenset(catalog.names()))
    return Pipeline(service, "replay", [*DIALECT.bindings.values()])


def send_http(server: Pipeline, request: HttpRequest) -> Reply:
    """The answer of ``server`` as a client has it."""
    answer: HttpAnswer = server.handlers["http"].head(request) or _LOOP.run(
        server.handlers["http"].serve(request)
    )
    headers, body = received(answer.headers), b"".join(parts_of(answer))
    if coding := headers.get("content-encoding"):
        body = inflate(coding, body, None)
    return Reply(answer.status, headers, body)


def send_grpc(server: Pipeline, method: str, message: bytes) -> GrpcAnswer:
    """The answer of ``server`` to one unary call."""
    # what was broken may begin a sequence without an end, which makes the next one wait
    context = Context(deadline=time.monotonic() + 10)
    return _LOOP.run(server.handlers["grpc"].serve(GrpcRequest(method, message, context=context)))


def http_differences(recording: HttpRecording, ours: Reply) -> set[str]:
    """What tells ``ours`` from the recorded answer: ``status``, ``content-type``, ``content-encoding``,
    ``header length``, ``body``; for errors ``status`` and ``text``."""
    theirs = recording.reply
    assert theirs is not None
    if ours.status != theirs.status:
        return {"status"}
    if ours.status != 200:
        told = orjson.loads(ours.body)["error"]
        return set() if _same_text(told, theirs.body.decode()) else {"text"}
    found = {
        name
        for name in ("content-type", "content-encoding")
        if ours.headers.get(name) != theirs.headers.get(name)
    }
    if (HEADER_LENGTH in ours.headers) != (HEADER_LENGTH in theirs.headers):
        found.add("header length")
    if _comparable(recording.path, theirs) != _comparable(recording.path, ours):
        found.add("body")
    return found


def grpc_differences(recording: GrpcRecording, ours: GrpcAnswer) -> set[str]:
    """What tells ``ours`` from the recorded answer: ``code``, ``message``; for errors ``code``, ``text``."""
    theirs = recording.reply
    if ours.code != theirs.code:
        return {"code"}
    if ours.code:
        return set() if _same_text(ours.details, theirs.details) else {"text"}
    message = MESSAGES[f"inference.{recording.method.removeprefix(SERVICE)}Response"]
    said, told = (message.FromString(bytes(answer.message)) for answer in (theirs, ours))
    if recording.rpc == "ServerMetadata":
        # the name, version and extensions are each server's own
        same = [field for field, _ in said.ListFields()] == [field for field, _ in told.ListFields()]
    else:
        same = said == told
    return set() if same else {"message"}


def _same_text(ours: str, theirs: str) -> bool:
    known = _TEXTS.search(theirs)
    return known is None or known[0] in ours


def _comparable(path: str, reply: Reply) -> tuple[Any, bytes]:
    """The JSON of an answer in a form that is equal for equal answers, and its binary part."""
    if not reply.body:
        return None, b""
    length = int(reply.headers.get(HEADER_LENGTH, len(reply.body)))
    # a recorded text may be no UTF-8, and hold the literals NaN and Infinity
    document = json.loads(reply.body[:length].decode(errors="surrogateescape"))
    if path == "/v2":
        # the name, version and extensions are each server's own
        return sorted(document), b""
    for output in document.get("outputs", ()):
        if output["datatype"] == "FP32" and "data" in output:
            # 0.1 and 0.10000000149011612 are the same number there
            output["data"] = np.array(output["data"], np.float32).tobytes().hex()
    # as text, where 1, 1.0 and true differ
    return json.dumps(document, sort_keys=True), reply.body[length:]
