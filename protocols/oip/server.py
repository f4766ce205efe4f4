"""What the dialect offers as a server: one table of HTTP endpoints, one of gRPC methods.

Paths, versions and statuses are here; the forms of requests and answers belong to ``codec_http``,
``metadata_json`` and ``codec_grpc``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from protocols.dialect import Action, GrpcEndpoint, HttpEndpoint, Opened
from protocols.numeric_json import write_json
from protocols.oip.codec import HTTP_STATUS
from protocols.oip.codec_grpc import METHOD, open_infer
from protocols.oip.codec_http import JSON_HEADERS, ReplyForm, decode_request, encode_response
from protocols.oip.grpc_messages import fail
from protocols.oip.grpc_probes import OPENERS
from protocols.oip.metadata_json import write_model_metadata, write_server_metadata
from protocols.wire import Headers, HttpAnswer, HttpRequest
from schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    ServerMetadata,
    Signature,
)

_LAST_VERSION = 2**63 - 1


def http_error(error: InferenceError) -> HttpAnswer:
    """``error`` as the dialect has it over HTTP."""
    headers: Headers = JSON_HEADERS
    if error.code is ErrorCode.OVERLOADED:
        headers = (*headers, ("Retry-After", "1"))
    if "accept_encoding" in error.details:
        headers = (*headers, ("Accept-Encoding", error.details["accept_encoding"]))
    # a message may quote what is no Unicode
    message = error.message.encode(errors="backslashreplace").decode()
    return _json(HTTP_STATUS[error.code], {"error": message}, headers)


def http_unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """The answer to a path or method that no endpoint has."""
    if allowed:
        headers = (*JSON_HEADERS, ("Allow", ", ".join(sorted(allowed))))
        return _json(405, {"error": "Method Not Allowed"}, headers)
    return _json(404, {"error": "Not Found"})


def _json(status: int, document: dict[str, Any], headers: Headers = JSON_HEADERS) -> HttpAnswer:
    return HttpAnswer(status, headers, [write_json(document)])


def _model(request: HttpRequest) -> str:
    """The model that the path names, percent-decoded: clients quote names, and expect it undone."""
    name = request.params["model"]
    try:
        name = unquote(name, errors="strict")
        name.encode()
    except UnicodeError:
        raise InferenceError(
            ErrorCode.NOT_FOUND, f"the model name {name!a} in the path is not UTF-8"
        ) from None
    return name


def _version(request: HttpRequest) -> str:
    """The version that the path asks for, empty for none; only digits make a version."""
    version = request.params.get("version", "")
    if not version:
        return ""
    if not (version.isascii() and version.isdigit()):
        raise InferenceError(ErrorCode.NOT_FOUND, "Not Found")
    version = version.lstrip("0") or "0"
    if len(version) > 19 or int(version) > _LAST_VERSION:
        raise InferenceError(
            ErrorCode.INVALID_TENSOR,
            f"failed to get model version from specified version string '{version[:40]}', "
            "version should be an integral value > 0",
        )
    return version


def _decode_infer(opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, ReplyForm]:
    return decode_request(opened.message, opened.model, opened.version, signature)


def _encode_infer(form: ReplyForm, response: InferResponse) -> HttpAnswer:
    headers, parts = encode_response(form, response)
    return HttpAnswer(200, headers, parts)


def _encode_live(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    return _json(200 if state.ready else 400, {"live": state.ready})


def _encode_ready(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    if state.ready:
        return _json(200, {"ready": True})
    return _json(400, {"ready": False, "error": state.reason or "the server is not ready"})


def _encode_model_ready(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    if state.ready:
        return _json(200, {"name": opened.model, "ready": True})
    return _json(400, {"error": state.reason or "Model version not ready"})


def _encode_server_metadata(opened: Opened[HttpAnswer], metadata: ServerMetadata) -> HttpAnswer:
    return _json(200, write_server_metadata(metadata))


def _encode_model_metadata(opened: Opened[HttpAnswer], metadata: ModelMetadata) -> HttpAnswer:
    return _json(200, write_model_metadata(metadata))


def _fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    return http_error(error)


def _of_server(action: Action[HttpAnswer]) -> Callable[[HttpRequest], Opened[HttpAnswer]]:
    def open_request(request: HttpRequest) -> Opened[HttpAnswer]:
        return Opened(action)

    return open_request


def _of_model(action: Action[HttpAnswer]) -> Callable[[HttpRequest], Opened[HttpAnswer]]:
    def open_request(request: HttpRequest) -> Opened[HttpAnswer]:
        return Opened(action, _model(request), _version(request), request)

    return open_request


_LIVE = _of_server(Action(Operation.LIVE, _encode_live))
_READY = _of_server(Action(Operation.READY, _encode_ready))
_METADATA = _of_server(Action(Operation.SERVER_METADATA, _encode_server_metadata))
_MODEL_READY = _of_model(Action(Operation.MODEL_READY, _encode_model_ready))
_MODEL_METADATA = _of_model(Action(Operation.MODEL_METADATA, _encode_model_metadata))
_INFER = _of_model(Action(Operation.INFER, _encode_infer, _decode_infer))

HTTP_ENDPOINTS: tuple[HttpEndpoint, ...] = tuple(
    HttpEndpoint(method, path, open_request, _fail)
    for method, path, open_request in (
        ("GET", "/v2", _METADATA),
        ("GET", "/v2/health/live", _LIVE),
        ("GET", "/v2/health/ready", _READY),
        ("GET", "/v2/models/{model}", _MODEL_METADATA),
        ("GET", "/v2/models/{model}/versions/{version}", _MODEL_METADATA),
        ("GET", "/v2/models/{model}/ready", _MODEL_READY),
        ("GET", "/v2/models/{model}/versions/{version}/ready", _MODEL_READY),
        ("POST", "/v2/models/{model}/infer", _INFER),
        ("POST", "/v2/models/{model}/versions/{version}/infer", _INFER),
    )
)

GRPC_ENDPOINTS: tuple[GrpcEndpoint, ...] = tuple(
    GrpcEndpoint(method, open_message, fail)
    for method, open_message in {METHOD: open_infer, **OPENERS}.items()
)
