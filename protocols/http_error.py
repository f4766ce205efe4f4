"""Errors over HTTP as JSON, for dialects whose errors are documents with a member ``error``."""

from __future__ import annotations

from typing import Any

from interlingua.protocols.wire import CHALLENGE, REQUEST_ID, Headers, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.trace import trace_id_of


def error_headers(error: InferenceError) -> Headers:
    """The headers that ``error`` adds to its answer, besides the content type."""
    headers: Headers = ()
    if error.code is ErrorCode.OVERLOADED:
        headers = (*headers, ("Retry-After", "1"))
    if error.code is ErrorCode.UNAUTHENTICATED:
        headers = (*headers, *CHALLENGE)
    if "accept_encoding" in error.details:
        headers = (*headers, ("Accept-Encoding", error.details["accept_encoding"]))
    return headers


def error_document(words: str, request: HttpRequest | None = None) -> dict[str, Any]:
    """The members for an error with this text, with the id of ``request`` and of its trace, if it has any."""
    # a message may quote text that is not Unicode
    document: dict[str, Any] = {"error": words.encode(errors="backslashreplace").decode()}
    if request is None:
        return document
    request_id, trace_id = request.headers.get(REQUEST_ID, ""), trace_id_of(request.context.traceparent)
    if request_id and request_id.isprintable():
        document["request_id"] = request_id
    if trace_id:
        document["trace_id"] = trace_id
    return document
