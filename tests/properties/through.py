"""A message through a dialect: our client's bytes into our server's tables, and back.

No socket: the rows of a dialect's client compose with the rows of its server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from interlingua.protocols.brpc_status import ERROR_CODES
from interlingua.protocols.dialect import Opened
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import (
    BrpcAnswer,
    FramedAnswer,
    FramedCall,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
    parts_of,
)
from interlingua.runtime.model_config.config import ModelConfig
from interlingua.runtime.model_config.message import config_message
from interlingua.schemas import (
    Context,
    Deployment,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    ModelState,
    ModelStatus,
    Operation,
    Readiness,
    ServerMetadata,
    ServerState,
    ServerStatus,
    Signature,
    VersionStatus,
)

WIRES: list[tuple[str, str]] = [
    (name, transport) for name, dialect in DIALECTS.items() for transport in sorted(dialect.bindings)
]
"""Every dialect over every transport that it has."""


def request_through(
    wire: tuple[str, str], request: InferRequest, signature: Signature
) -> tuple[InferRequest, Opened[Any], Any]:
    """What the dialect's server understands when its client sends ``request``; and what the server must
    keep to answer. Raises where either cannot."""
    call, _ = _encoded(wire, Operation.INFER, request, signature)
    opened = _endpoint(wire, call).open(call)
    assert opened.action.operation is Operation.INFER and opened.action.decode is not None
    understood, form = opened.action.decode(opened, signature)
    understood.model = understood.model or request.model  # as a listener's default model
    return understood, opened, form


def response_through(
    wire: tuple[str, str], request: InferRequest, response: InferResponse, signature: Signature
) -> InferResponse:
    """What the dialect's client understands when its server answers ``request`` with ``response``."""
    _, opened, form = request_through(wire, request, signature)
    _, kept = _encoded(wire, Operation.INFER, request, signature)
    answer = opened.action.encode(form, response)
    return _table(wire)[Operation.INFER].decode(kept, received(answer))  # type: ignore[no-any-return]


def result_through(wire: tuple[str, str], operation: Operation, asked: ModelRef | None, result: Any) -> Any:
    """What the dialect's client understands when its server answers ``operation`` with ``result``."""
    call, kept = _encoded(wire, operation, asked, None)
    opened = _endpoint(wire, call).open(call)
    if opened.action.operation is Operation.STATUS:
        result = _status_of(opened.model, result)
    elif opened.action.operation is Operation.DEPLOYMENT:
        result = Deployment(_status_of("model", result).models)
    elif opened.action.operation is Operation.MODEL_METADATA and isinstance(result, Readiness):
        # a dialect without readiness: a server that describes its model is ready
        if not result.ready:
            unready = InferenceError(ErrorCode.UNAVAILABLE, result.reason)
            answer = _endpoint(wire, call).fail(call, opened, unready)
            return _table(wire)[operation].decode(kept, received(answer))
        result = ModelMetadata("model", Signature((), ()))
    else:
        # some ask for the readiness of a model by that of its server
        assert opened.action.operation in (operation, Operation.READY)
    return _table(wire)[operation].decode(kept, received(opened.action.encode(opened, result)))


def error_through(wire: tuple[str, str], error: InferenceError, request: InferRequest) -> InferenceError:
    """The error that the dialect's client raises when its server fails with ``error``."""
    call, kept = _encoded(wire, Operation.INFER, request, None)
    endpoint = _endpoint(wire, call)
    answer = endpoint.fail(call, None, error)
    try:
        _table(wire)[Operation.INFER].decode(kept, received(answer))
    except InferenceError as understood:
        return understood
    raise AssertionError("an error was read as an answer")


def error_to(
    wire: tuple[str, str], error: InferenceError, request: InferRequest, signature: Signature
) -> InferenceError:
    """As :func:`error_through`, where the request was understood."""
    call, kept = _encoded(wire, Operation.INFER, request, signature)
    endpoint = _endpoint(wire, call)
    answer = endpoint.fail(call, endpoint.open(call), error)
    try:
        _table(wire)[Operation.INFER].decode(kept, received(answer))
    except InferenceError as understood:
        return understood
    raise AssertionError("an error was read as an answer")


def streamed_through(
    wire: tuple[str, str], request: InferRequest, responses: Iterable[InferResponse], signature: Signature
) -> list[InferResponse]:
    """What the dialect's client understands when its server answers ``request`` with these."""
    call, kept = _encoded(wire, Operation.INFER_STREAM, request, signature)
    endpoint = _endpoint(wire, call)
    opened = endpoint.open(call)
    assert opened.action.operation is Operation.INFER_STREAM and opened.action.decode is not None
    understood, form = opened.action.decode(opened, signature)
    assert understood.inputs == request.inputs
    pieces = [opened.action.encode(form, response) for response in responses]
    replies = [received(piece) for piece in pieces if piece is not None]
    if wire[1] == "http":  # the end of the body
        replies.append(HttpReply(200, {"content-type": "text/event-stream"}, b""))
    decode = _table(wire)[Operation.INFER_STREAM].decode
    return [response for reply in replies for response in decode(kept, reply)]


def _status_of(model: str, result: ModelMetadata | Readiness | ServerMetadata) -> ServerStatus:
    """The status of a server of which ``result`` is true: some dialects have one answer for all."""
    models: dict[str, ModelStatus] = {}
    name = "inference:0"
    if isinstance(result, ModelMetadata):
        config = config_message(ModelConfig(name=model, platform=result.platform), result.signature)
        versions = tuple(VersionStatus(each, ModelState.READY) for each in result.versions)
        models[model] = ModelStatus(model, config, versions)
    elif isinstance(result, Readiness):
        state = ModelState.READY if result.ready else ModelState.UNAVAILABLE
        models[model] = ModelStatus(model, b"", (VersionStatus("1", state, result.reason),))
    else:
        name = result.name
    return ServerStatus(name, ServerState.READY, 1, models)


def received(answer: HttpAnswer | GrpcAnswer | BrpcAnswer | FramedAnswer) -> Any:
    """An answer as the other side gets it. Raises what a bRPC client raises by itself."""
    if isinstance(answer, BrpcAnswer) and answer.code:
        raise InferenceError(ERROR_CODES.get(answer.code, ErrorCode.BAD_UPSTREAM), answer.text)
    if isinstance(answer, FramedAnswer):
        return FramedReply(_unframed(answer.parts))
    if not isinstance(answer, HttpAnswer):
        return answer
    headers = {name.lower(): value for name, value in answer.headers}
    return HttpReply(answer.status, headers, b"".join(parts_of(answer)))


def _table(wire: tuple[str, str]) -> Any:
    return DIALECTS[wire[0]].bindings[wire[1]].calls


def _encoded(wire: tuple[str, str], operation: Operation, argument: Any, signature: Any) -> tuple[Any, Any]:
    if argument is not None and not DIALECTS[wire[0]].bindings[wire[1]].capability.many_models:
        argument = _nameless(argument)
    call, kept = _table(wire)[operation].encode(argument, signature)
    # as the pipeline does for every request
    call.context = Context(server_id="inference:0", request_number=7)
    if isinstance(call, HttpCall):
        headers = {name.lower(): value for name, value in call.headers.items()}
        body = b"".join(call.parts)
        call = HttpRequest(call.method, call.path, call.query, headers, body, context=call.context)
    elif isinstance(call, FramedCall):
        call = FramedRequest(_unframed(call.parts), call.context)
    return call, kept


def _nameless(argument: Any) -> Any:
    """A question without the name of its model, where an address has but one."""
    return replace(argument, model="") if isinstance(argument, InferRequest) else replace(argument, name="")


def _unframed(parts: Iterable[Any]) -> bytes:
    """What stands in a frame behind its size, which has to be right."""
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    return frame[4:]


def _endpoint(wire: tuple[str, str], call: Any) -> Any:
    endpoints = DIALECTS[wire[0]].bindings[wire[1]].endpoints
    if wire[1] == "tcp":
        return endpoints[0]
    if wire[1] != "http":
        return next(each for each in endpoints if each.method == call.method)
    methods, call.params = _paths(wire[0]).find(call.path)
    return methods.get(call.method) or methods["*"]


@cache
def _paths(dialect: str) -> PathTable:
    endpoints = DIALECTS[dialect].bindings["http"].endpoints
    return PathTable(each for each in endpoints if each.path != "*")
