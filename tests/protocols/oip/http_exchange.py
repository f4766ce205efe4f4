"""Both ends of an exchange without a network: what a transport would do between the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from interlingua.protocols.dialect import Opened
from interlingua.protocols.oip import DIALECT
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.wire import HttpAnswer, HttpCall, HttpReply, HttpRequest, parts_of
from interlingua.schemas import InferenceError, Signature

PATHS = PathTable(DIALECT.bindings["http"].endpoints)


def received(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers as a transport hands them over: found in lower case."""
    return {name.lower(): value for name, value in headers}


def arriving(call: HttpCall) -> HttpRequest:
    """A client's request as the server's transport has it."""
    headers = received(call.headers.items())
    return HttpRequest(call.method, call.path, call.query, headers, b"".join(call.parts))


def post(
    body: bytes, headers: Mapping[str, str] | None = None, path: str = "/v2/models/m/infer", **options: Any
) -> HttpRequest:
    """A request as received; ``headers`` in lower case."""
    return HttpRequest("POST", path, headers=headers or {}, body=body, **options)


def opened(request: HttpRequest) -> Opened[HttpAnswer]:
    """``request`` opened by the endpoint that its path finds."""
    methods, request.params = PATHS.find(request.path)
    return methods[request.method].open(request)


def decoded(request: HttpRequest, signature: Signature) -> tuple[Any, Any]:
    """The IR request and the reply form of an inference request."""
    message = opened(request)
    assert message.action.decode is not None
    return message.action.decode(message, signature)


def refused(request: HttpRequest, error: InferenceError) -> HttpAnswer:
    """``error`` as the endpoint of ``request`` writes it."""
    methods, request.params = PATHS.find(request.path)
    return methods[request.method].fail(request, None, error)


def reply(answer: HttpAnswer) -> HttpReply:
    """A server's answer as the client's transport has it."""
    return HttpReply(answer.status, received(answer.headers), b"".join(parts_of(answer)))
