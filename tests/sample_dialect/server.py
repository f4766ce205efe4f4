"""The endpoints of the sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.dialect import Action, HttpEndpoint, Opened
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    Signature,
)
from interlingua.schemas.errors import HTTP_STATUS
from tests.sample_dialect.codec import JSON, read, read_tensors, write, write_signature, write_tensors

HttpOpened = Opened[HttpAnswer]


def _answer(status: int, document: dict[str, Any]) -> HttpAnswer:
    return HttpAnswer(status, tuple(JSON.items()), (write(document),))


def fail(request: HttpRequest, opened: HttpOpened | None, error: InferenceError) -> HttpAnswer:
    return _answer(HTTP_STATUS[error.code], {"error": error.message, "code": error.code.value})


def unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    code = ErrorCode.UNSUPPORTED if allowed else ErrorCode.NOT_FOUND
    return _answer(405 if allowed else 404, {"error": "there is no such path", "code": code.value})


def _decode(opened: HttpOpened, signature: Signature) -> tuple[InferRequest, None]:
    return InferRequest(opened.model, read_tensors(read(opened.message, "inputs"))), None


def _encode(form: None, response: InferResponse) -> HttpAnswer:
    return _answer(200, {"outputs": write_tensors(response.outputs)})


def _encode_ready(opened: HttpOpened, state: Readiness) -> HttpAnswer:
    document = {"name": opened.model, "ready": state.ready, "reason": state.reason}
    return _answer(200 if state.ready else 503, document)


def _encode_metadata(opened: HttpOpened, model: ModelMetadata) -> HttpAnswer:
    facts = {"name": model.name, "platform": model.platform, "versions": list(model.versions)}
    return _answer(200, {**facts, **write_signature(model.signature)})


def _opener(action: Action[HttpAnswer]) -> Callable[[HttpRequest], HttpOpened]:
    return lambda request: Opened(action, unquote(request.params["model"]), message=request.body)


ENDPOINTS = tuple(
    HttpEndpoint(method, f"/v1/models/{{model}}{path}", _opener(action), fail)
    for method, path, action in (
        ("GET", "", Action(Operation.MODEL_READY, _encode_ready)),
        ("GET", "/metadata", Action(Operation.MODEL_METADATA, _encode_metadata)),
        ("POST", ":predict", Action(Operation.INFER, _encode, _decode)),
    )
)
