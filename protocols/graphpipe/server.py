"""GraphPipe as a server over HTTP and over tcp: endpoints and errors.

Over HTTP a POST carries a ``Request``, a GET requests the metadata as JSON. The original servers have one
model and no paths; here a model is at ``/graphpipe/{model}[/{version}]``, and the default model at ``/``, or
at every path if the listener speaks GraphPipe alone. ``/control/`` has the probes of the original servers.
Over tcp the model is the listener's default, and errors are in band.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.content_coding import plain_body
from interlingua.protocols.dialect import Action, FramedEndpoint, HttpEndpoint, Opened
from interlingua.protocols.graphpipe import codec, metadata
from interlingua.protocols.graphpipe.passthrough import BINARY, HTTP_PASSTHROUGH, TCP_PASSTHROUGH
from interlingua.protocols.wire import CHALLENGE, Buffer, FramedAnswer, FramedRequest, HttpAnswer, HttpRequest
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    Signature,
    malformed,
)
from interlingua.schemas.errors import HTTP_STATUS

_JSON = (("content-type", "application/json"),)
_TEXT = ("content-type", "text/plain; charset=utf-8")

_HEADERS = {ErrorCode.OVERLOADED: (("retry-after", "1"),), ErrorCode.UNAUTHENTICATED: CHALLENGE}
"""The headers of errors."""


def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    """``error`` in the form that every GraphPipe client notices: a status and a line of text."""
    headers = list(_HEADERS.get(error.code, ()))
    if "accept_encoding" in error.details:
        return _text(415, error.message, ("accept-encoding", error.details["accept_encoding"]))
    return _text(HTTP_STATUS[error.code], error.message, *headers)


def unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """The answer to an unknown path or method."""
    if allowed:
        return _text(405, f"method {request.method} is not allowed here", ("allow", ", ".join(allowed)))
    return _text(404, "404 page not found")


def fail_in_band(
    request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError
) -> HttpAnswer:
    """``error`` as an ``InferResponse`` to any request, with status 200. Of the known clients only Python's
    looks for it."""
    return HttpAnswer(200, BINARY, [codec.encode_error(error)])


def fail_in_frame(
    request: FramedRequest, opened: Opened[FramedAnswer] | None, error: InferenceError
) -> FramedAnswer:
    """``error`` as an ``InferResponse`` to any request."""
    return FramedAnswer([codec.encode_error(error, prefixed=True)])


def _open_message(request: HttpRequest) -> Opened[HttpAnswer]:
    model, version = _addressed(request)
    message = codec.open_request(plain_body(request))
    return Opened(_METADATA if message.table is None else _INFER, model, version, message)


def _open_frame(request: FramedRequest) -> Opened[FramedAnswer]:
    message = codec.open_request(request.message)
    return Opened(_METADATA_FRAME if message.table is None else _INFER_FRAME, message=message)


def _open_get(request: HttpRequest) -> Opened[HttpAnswer]:
    return Opened(_METADATA_JSON, *_addressed(request))


def _open_control(request: HttpRequest) -> Opened[HttpAnswer]:
    word = request.params["word"]
    if word not in _CONTROL:
        raise InferenceError(
            ErrorCode.UNSUPPORTED, f"/control/{word} is not offered, only {', '.join(_CONTROL)}"
        )
    return Opened(_CONTROL[word])


def _addressed(request: HttpRequest) -> tuple[str, str]:
    """Model and version in the path; empty for the default."""
    params = request.params
    if not params:
        return "", ""
    try:
        return (
            unquote(params.get("model", ""), errors="strict"),
            unquote(params.get("version", ""), errors="strict"),
        )
    except UnicodeDecodeError as error:
        raise malformed(f"the path {request.path} is not UTF-8") from error


def _decode(opened: Opened[Any], signature: Signature) -> tuple[InferRequest, codec.OutputNames]:
    request, names = codec.decode_request(opened.message, signature, opened.model, opened.version)
    # a tensor of an answer is known by its position, so a request for all outputs gets every one
    return request, names or tuple(signature.output_names) or None


def _encode(form: codec.OutputNames, response: InferResponse) -> HttpAnswer:
    return HttpAnswer(200, BINARY, codec.encode_response(form, response.outputs))


def _encode_frame(form: codec.OutputNames, response: InferResponse) -> FramedAnswer:
    return FramedAnswer(codec.encode_response(form, response.outputs, prefixed=True))


def _metadata(opened: Opened[Any], found: ModelMetadata, *, prefixed: bool = False) -> bytes:
    return metadata.encode_metadata(metadata.describe(found, opened.version), prefixed=prefixed)


def _encode_metadata(opened: Opened[HttpAnswer], found: ModelMetadata) -> HttpAnswer:
    return HttpAnswer(200, BINARY, [_metadata(opened, found)])


def _encode_metadata_frame(opened: Opened[FramedAnswer], found: ModelMetadata) -> FramedAnswer:
    return FramedAnswer([_metadata(opened, found, prefixed=True)])


def _encode_metadata_json(opened: Opened[HttpAnswer], found: ModelMetadata) -> HttpAnswer:
    return HttpAnswer(200, _JSON, [metadata.encode_json(metadata.describe(found, opened.version))])


def _encode_state(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    return _text(200, "ok") if state.ready else _text(503, state.reason)


def _text(status: int, text: str, *headers: tuple[str, str]) -> HttpAnswer:
    line: Buffer = f"{text}\n".encode(errors="backslashreplace")
    return HttpAnswer(status, (_TEXT, *headers), [line])


_INFER = Action(Operation.INFER, _encode, _decode, passthrough=HTTP_PASSTHROUGH)
_METADATA = Action(Operation.MODEL_METADATA, _encode_metadata)
_METADATA_JSON = Action(Operation.MODEL_METADATA, _encode_metadata_json)
_INFER_FRAME = Action(Operation.INFER, _encode_frame, _decode, passthrough=TCP_PASSTHROUGH)
_METADATA_FRAME = Action(Operation.MODEL_METADATA, _encode_metadata_frame)
_CONTROL = {
    "is_alive": Action(Operation.LIVE, _encode_state),
    "is_ready": Action(Operation.READY, _encode_state),
}

_OF_MESSAGES = (Operation.MODEL_METADATA, Operation.INFER)
_OF_GET = (Operation.MODEL_METADATA,)

HTTP_ENDPOINTS: tuple[HttpEndpoint, ...] = (
    *(
        endpoint
        for path in ("/graphpipe/{model}", "/graphpipe/{model}/{version}")
        for endpoint in (
            HttpEndpoint("POST", path, _open_message, fail, operations=_OF_MESSAGES),
            HttpEndpoint("GET", path, _open_get, fail, operations=_OF_GET),
        )
    ),
    HttpEndpoint("*", "/control/{word}", _open_control, fail, operations=(Operation.LIVE, Operation.READY)),
    # to the original servers every method but GET carries a message
    *(
        endpoint
        for path in ("/", "*")
        for endpoint in (
            HttpEndpoint("GET", path, _open_get, fail, operations=_OF_GET),
            HttpEndpoint("*", path, _open_message, fail, operations=_OF_MESSAGES),
        )
    ),
)
"""Endpoints with the path ``*`` are for listeners that speak GraphPipe alone."""

IN_BAND_ENDPOINTS = tuple(
    replace(endpoint, fail=fail_in_band) if endpoint.open is _open_message else endpoint
    for endpoint in HTTP_ENDPOINTS
)
"""The same, with the errors of messages in band."""

FRAMED_ENDPOINT = FramedEndpoint(_open_frame, fail_in_frame, _OF_MESSAGES)
