"""The REST endpoints of the dialect."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from interlingua.protocols.content_coding import plain_body
from interlingua.protocols.dialect import Action, HttpEndpoint, Opened
from interlingua.protocols.json_document import LONG_BYTES, check_elements, is_long
from interlingua.protocols.tfserving import examples
from interlingua.protocols.tfserving.classify import ExampleForm
from interlingua.protocols.tfserving.codec import (
    CLASSIFY_METHOD,
    NO_MODEL,
    REGRESS_METHOD,
    check_signature_name,
)
from interlingua.protocols.tfserving.codec_http import (
    JSON_HEADERS,
    PredictForm,
    decode_request,
    encode_response,
    parse_object,
    signature_name,
)
from interlingua.protocols.tfserving.http_endpoint import error_answer, fail, json_answer, of_model
from interlingua.protocols.tfserving.json_tensors import scalars
from interlingua.protocols.tfserving.metadata import metadata_document, version_described
from interlingua.protocols.tfserving.passthrough_http import PASSTHROUGH
from interlingua.protocols.tfserving.results import classes_of, regressions_of
from interlingua.protocols.tfserving.status import document, states
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest
from interlingua.schemas import (
    InferRequest,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    ServerStatus,
    Signature,
    Tensor,
    offload,
)

# --- inference


def decode_predict(opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, PredictForm]:
    """The request for a prediction, and the form of its answer."""
    message: HttpRequest = opened.message
    read = opened.argument
    if read is not None and read[0] is signature:
        return read[1], read[2]  # the passthrough has read it
    request, form = decode_request(plain_body(message), opened.model, opened.version, signature)
    request.context = message.context
    return request, form


def _encode_predict(form: PredictForm, response: InferResponse) -> HttpAnswer:
    return HttpAnswer(200, JSON_HEADERS, [encode_response(form, response)])


def _decode_examples(
    method: str, opened: Opened[HttpAnswer], signature: Signature
) -> tuple[InferRequest, ExampleForm]:
    message: HttpRequest = opened.message
    body = plain_body(message)
    if len(body) > LONG_BYTES and is_long(body):
        inputs, count = offload.call(_read_long, method, body, signature)
    else:
        inputs, count = _read(method, body, signature)
    request = InferRequest(opened.model, inputs, None, opened.version, context=message.context)
    return request, ExampleForm(count, signature, (method,))


def _read_long(method: str, body: Buffer, signature: Signature) -> tuple[tuple[Tensor, ...], int]:
    check_elements(body)
    return _read(method, body, signature)


def _read(method: str, body: Buffer, signature: Signature) -> tuple[tuple[Tensor, ...], int]:
    given = parse_object(body)
    check_signature_name(signature_name(given), method)
    found = examples.of_document(given)
    return found.inputs(signature), found.count


def _encode_classes(form: ExampleForm, response: InferResponse) -> HttpAnswer:
    found = classes_of(response, form.signature, form.count, doubles=True)
    results = [[[each.label, scalars([each.score])[0]] for each in row] for row in found]
    return json_answer(200, {"results": results})


def _encode_regressions(form: ExampleForm, response: InferResponse) -> HttpAnswer:
    return json_answer(200, {"results": scalars(regressions_of(response, form.count, doubles=True))})


# --- metadata and status


def _encode_metadata(opened: Opened[HttpAnswer], metadata: ModelMetadata) -> HttpAnswer:
    return json_answer(200, metadata_document(metadata, version_described(metadata, opened.version)))


def _encode_status(opened: Opened[HttpAnswer], status: ServerStatus) -> HttpAnswer:
    return json_answer(200, document(states(status, opened.model, opened.version)))


def _encode_ready(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    """A request for the status of no model shows that the server answers: as there, it is an error."""
    if state.ready:
        return error_answer(400, NO_MODEL)
    return error_answer(503, state.reason or "the server is not ready")


_READY: Action[HttpAnswer] = Action(Operation.READY, _encode_ready)
_STATUS: Action[HttpAnswer] = Action(Operation.STATUS, _encode_status)
_METADATA: Action[HttpAnswer] = Action(Operation.MODEL_METADATA, _encode_metadata)
PREDICT: Action[HttpAnswer] = Action(Operation.INFER, _encode_predict, decode_predict)
_PASSED = replace(PREDICT, passthrough=PASSTHROUGH)
_CLASSIFY: Action[HttpAnswer] = Action(
    Operation.INFER, _encode_classes, partial(_decode_examples, CLASSIFY_METHOD)
)
_REGRESS: Action[HttpAnswer] = Action(
    Operation.INFER, _encode_regressions, partial(_decode_examples, REGRESS_METHOD)
)

_MODELS = tuple(f"/v1/models/{{model}}{which}" for which in ("", "/versions/{version}", "/labels/{label}"))
_OF_A_MODEL: tuple[tuple[str, str, Any], ...] = (
    ("GET", "", _STATUS),
    ("GET", "/metadata", _METADATA),
    ("POST", ":predict", _PASSED),
    ("POST", ":classify", _CLASSIFY),
    ("POST", ":regress", _REGRESS),
)

HTTP_ENDPOINTS: tuple[HttpEndpoint, ...] = (
    HttpEndpoint(
        "GET",
        "/v1/models",
        lambda request: Opened(_READY),
        fail,
        any_case=True,
        operations=(_READY.operation,),
    ),
    *(
        HttpEndpoint(
            method,
            model + suffix,
            of_model(action),
            fail,
            any_case=True,
            operations=(action.operation,),
        )
        for method, suffix, action in _OF_A_MODEL
        for model in _MODELS
    ),
)
