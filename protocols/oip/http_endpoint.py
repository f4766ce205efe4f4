"""What every HTTP endpoint of the dialect shares: the model and version of a path, JSON, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.http_error import error_document, error_headers
from interlingua.protocols.json_document import write_json
from interlingua.protocols.oip.codec import reported_code
from interlingua.protocols.oip.codec_http import JSON_HEADERS
from interlingua.protocols.wire import Headers, HttpAnswer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError, Operation, invalid_tensor
from interlingua.schemas.errors import HTTP_STATUS

Open = Callable[[HttpRequest], Opened[HttpAnswer]]
Opener = tuple[Operation, Open]
"""An operation, and what opens its requests."""

_LAST_VERSION = 2**63 - 1


def http_error(
    error: InferenceError, operation: Operation | None = None, request: HttpRequest | None = None
) -> HttpAnswer:
    """The answer for ``error``, of ``operation`` if known, to ``request`` if it is at hand."""
    status = HTTP_STATUS[reported_code(operation, error.code)]
    headers = (*JSON_HEADERS, *error_headers(error))
    return json_answer(status, error_document(error.message, request), headers)


def json_answer(status: int, document: Any, headers: Headers = JSON_HEADERS) -> HttpAnswer:
    """``document`` as the whole answer."""
    return HttpAnswer(status, headers, [write_json(document)])


def json_encoder(write: Callable[[Any], Any]) -> Callable[[Opened[HttpAnswer], Any], HttpAnswer]:
    """The encoder of a result as the document of ``write``."""
    return lambda opened, result: json_answer(200, write(result))


def model_of(request: HttpRequest) -> str:
    """The model in the path, percent-decoded, because clients quote names."""
    name = request.params["model"]
    try:
        name = unquote(name, errors="strict")
        name.encode()
    except UnicodeError:
        raise InferenceError(
            ErrorCode.NOT_FOUND, f"the model name {name!a} in the path is not UTF-8"
        ) from None
    return name


def version_of(request: HttpRequest) -> str:
    """The version in the path, empty for none. Raises for anything but digits."""
    version = request.params.get("version", "")
    if not version:
        return ""
    if not (version.isascii() and version.isdigit()):
        raise InferenceError(ErrorCode.NOT_FOUND, "Not Found")
    version = version.lstrip("0") or "0"
    if len(version) > 19 or int(version) > _LAST_VERSION:
        raise invalid_tensor(
            f"failed to get model version from specified version string '{version[:40]}', "
            "version should be an integral value > 0"
        )
    return version


def http_fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    """The answer of an endpoint for ``error``."""
    operation = opened.action.operation if opened else None
    return http_error(error, operation, request)


def of_server(action: Action[HttpAnswer]) -> Opener:
    """The opener of requests about the server."""
    return action.operation, lambda request: Opened(action)


def of_model(action: Action[HttpAnswer]) -> Opener:
    """The opener of requests about the model, and the version if any, of the path."""

    def open_request(request: HttpRequest) -> Opened[HttpAnswer]:
        name, version = request.params["model"], request.params.get("version", "")
        if "%" in name or not name.isascii():
            name = model_of(request)
        return Opened(action, name, version and version_of(request), request)

    return action.operation, open_request
