"""The dialect as KServe's version 1 has it: lists of models, readiness, predictions, and CloudEvents.

KServe's servers answer 503 for a model that is not ready, and have neither versions, metadata, nor requests
with examples. A model here has no explainer.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from interlingua.protocols.dialect import Action, HttpEndpoint, Opened
from interlingua.protocols.http_error import error_headers
from interlingua.protocols.tfserving import http_endpoint
from interlingua.protocols.tfserving.codec_http import (
    BY_COLUMN,
    BY_ROW,
    JSON_HEADERS,
    PredictForm,
    encode_response,
)
from interlingua.protocols.tfserving.http_endpoint import error_answer, json_answer, of_model
from interlingua.protocols.tfserving.server import decode_predict
from interlingua.protocols.wire import Headers, HttpAnswer, HttpRequest
from interlingua.schemas import (
    ErrorCode,
    IndexQuery,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Readiness,
    Signature,
    malformed,
    unsupported,
)

_REQUIRED = ("ce-id", "ce-source", "ce-specversion", "ce-type")
"""The headers of a CloudEvent in binary mode (CloudEvents HTTP protocol binding 1.0.2, section 3.1)."""

_SPEC_VERSIONS = frozenset({"0.3", "1.0"})
_ANSWER_TYPE = "io.kserve.inference.response"
_SOURCE = "io.kserve.inference."


@dataclass(frozen=True, slots=True)
class _EventForm:
    """The form of an answer to a CloudEvent, which is one too."""

    predict: PredictForm


def _decode(opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, Any]:
    request, form = decode_predict(opened, signature)
    # whatever else the model has, as there: its one answer comes without a name
    form = (BY_ROW if form.by_row else BY_COLUMN)[False]
    headers = opened.message.headers
    if "ce-specversion" not in headers:
        return request, form
    missing = [name for name in _REQUIRED if not headers.get(name)]
    if missing or headers["ce-specversion"] not in _SPEC_VERSIONS:
        what = f"required header {missing[0]} is missing" if missing else "unknown specversion"
        raise malformed(f"Cloud Event Exceptions: {what}")
    return request, _EventForm(form)


def _encode(form: PredictForm | _EventForm, response: InferResponse) -> HttpAnswer:
    if isinstance(form, PredictForm):
        return HttpAnswer(200, JSON_HEADERS, [encode_response(form, response)])
    headers: Headers = (
        *JSON_HEADERS,
        ("ce-specversion", "1.0"),
        ("ce-id", str(uuid.uuid4())),
        # a source is a URI-reference
        ("ce-source", _SOURCE + quote(response.model)),
        ("ce-type", _ANSWER_TYPE),
        ("ce-time", datetime.now(UTC).isoformat()),
    )
    return HttpAnswer(200, headers, [encode_response(form.predict, response)])


def _encode_ready(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    if state.ready:
        return json_answer(200, {"name": opened.model, "ready": True})
    return error_answer(503, f"Model with name {opened.model} is not ready. {state.reason}".strip())


_PREDICT: Action[HttpAnswer] = Action(Operation.INFER, _encode, _decode)
_READY: Action[HttpAnswer] = Action(Operation.MODEL_READY, _encode_ready)
_LIVE: Action[HttpAnswer] = Action(
    Operation.LIVE, lambda opened, state: json_answer(200, {"status": "alive"})
)
_LIST: Action[HttpAnswer] = Action(
    Operation.REPOSITORY_INDEX,
    lambda opened, models: json_answer(200, {"models": [model.name for model in models]}),
)


def _open_explain(request: HttpRequest) -> Opened[HttpAnswer]:
    opened = of_model(_PREDICT)(request)
    raise unsupported(f"model '{opened.model}' has no explainer: ':explain' is not supported")


def _fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    if opened is not None and error.model_not_found:
        words = f"Model with name {opened.model} does not exist. {error.message}"
        return error_answer(404, words, request, error_headers(error))
    if opened is not None and error.code is ErrorCode.UNAVAILABLE:
        words = f"Model with name {opened.model} is not ready. {error.message}"
        return error_answer(503, words, request, error_headers(error))
    return http_endpoint.fail(request, None, error)


def unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """The answer to an unknown path or method."""
    if allowed:
        headers = (*JSON_HEADERS, ("Allow", ", ".join(sorted(allowed))))
        return json_answer(405, {"detail": "Method Not Allowed"}, headers)
    return json_answer(404, {"detail": "Not Found"})


def _open_list(request: HttpRequest) -> Opened[HttpAnswer]:
    return Opened(_LIST, argument=IndexQuery(ready=True))


HTTP_ENDPOINTS: tuple[HttpEndpoint, ...] = tuple(
    HttpEndpoint(method, path, open_request, _fail, operations=(operation,))
    for method, path, open_request, operation in (
        ("GET", "/", lambda request: Opened(_LIVE), Operation.LIVE),
        ("GET", "/v1/models", _open_list, Operation.REPOSITORY_INDEX),
        ("GET", "/v1/models/{model}", of_model(_READY), Operation.MODEL_READY),
        ("POST", "/v1/models/{model}:predict", of_model(_PREDICT), Operation.INFER),
        ("POST", "/v1/models/{model}:explain", _open_explain, Operation.INFER),
    )
)
