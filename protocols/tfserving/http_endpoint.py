"""What every REST endpoint shares: the model and version of a path, JSON answers, and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.http_error import error_document, error_headers
from interlingua.protocols.json_document import write_json
from interlingua.protocols.tfserving.codec import as_original, label_of, version_number, version_of
from interlingua.protocols.tfserving.codec_http import JSON_HEADERS
from interlingua.protocols.wire import Headers, HttpAnswer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError, invalid_tensor
from interlingua.schemas import errors as codes
from interlingua.schemas.bounded_text import shortened

Open = Callable[[HttpRequest], Opened[HttpAnswer]]

HTTP_STATUS: Mapping[ErrorCode, int] = {
    **codes.HTTP_STATUS,
    ErrorCode.UNREPRESENTABLE: 400,
    ErrorCode.ALREADY_EXISTS: 409,
}
"""The HTTP status of each error code. The original has 400 for a failed precondition."""

_SHOWN = 40


def json_answer(status: int, document: Any, headers: Headers = JSON_HEADERS) -> HttpAnswer:
    """``document`` as the whole answer."""
    return HttpAnswer(status, headers, [write_json(document)])


def error_answer(
    status: int, words: str, request: HttpRequest | None = None, headers: Headers = ()
) -> HttpAnswer:
    """An error with this text, with the ids of ``request``, and these headers besides the content type."""
    return json_answer(status, error_document(words, request), (*JSON_HEADERS, *headers))


def fail(request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError) -> HttpAnswer:
    """The answer that reports ``error``."""
    error = as_original(opened, error)
    # RFC 9110, section 15.5.16: a content coding is a client's mistake
    status = 415 if "accept_encoding" in error.details else HTTP_STATUS[error.code]
    return error_answer(status, error.message, request, error_headers(error))


def unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """The answer to an unknown path, or to another method than the ``allowed`` ones."""
    words = f"Malformed request: {request.method} {shortened(request.path)}"
    if allowed:
        return error_answer(405, words, request, (("Allow", ", ".join(sorted(allowed))),))
    return error_answer(400 if request.path.lower().startswith("/v1/") else 404, words, request)


def of_model(action: Action[HttpAnswer]) -> Open:
    """What opens a request about the model, and its version or label, of the path."""

    def open_request(request: HttpRequest) -> Opened[HttpAnswer]:
        params = request.params
        name, version = params["model"], ""
        if "%" in name or not name.isascii():
            name = _unquoted(name)
        if len(params) > 1:
            version = (
                label_of(_unquoted(params["label"])) if "label" in params else _version(params["version"])
            )
        return Opened(action, name, version, request)

    return open_request


def _version(digits: str) -> str:
    """The version in a path. Raises INVALID_TENSOR for anything but a number of 64 bits."""
    number = version_number(digits.lstrip("0") or "0") if digits.isascii() and digits.isdigit() else None
    if number is None:
        raise invalid_tensor(f"Failed to convert version: {digits[:_SHOWN]} to numeric.")
    return version_of(number)


def _unquoted(name: str) -> str:
    """A name in a path, percent-decoded. Raises INVALID_TENSOR."""
    try:
        plain = unquote(name, errors="strict")
        plain.encode()
    except UnicodeError:
        raise invalid_tensor(f"Failed to decode model name:{name!a}") from None
    return plain
