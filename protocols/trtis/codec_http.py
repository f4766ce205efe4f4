"""Inference over HTTP: the message in headers, tensors in the body.

A request has its header in ``NV-InferRequest`` and the inputs, one after the other, as its body; header
and model determine their sizes. An answer's body has the outputs, then a copy of the ``InferResponseHeader``,
binary or as text. Tensors are views over the received body, and a written body is a list of parts. Paths
belong to ``server``, the text of headers to ``header_text``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf import text_format

from interlingua.protocols.trtis import codec
from interlingua.protocols.trtis.header_text import read, write_response_header, write_status
from interlingua.protocols.trtis.status import success
from interlingua.protocols.wire import Headers, HttpAnswer, HttpRequest
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    invalid_tensor,
)

REQUEST, RESPONSE, STATUS = "NV-InferRequest", "NV-InferResponse", "NV-Status"
"""The headers with messages."""

BINARY: tuple[str, str] = ("Content-Type", "application/octet-stream")


@dataclass(slots=True)
class TrtisHttpReplyForm:
    """The form of an answer; ``binary`` is the form of the header in its body."""

    form: codec.TrtisReplyForm
    binary: bool


def query_format(request: HttpRequest) -> str | None:
    """The ``format`` in the query, None if absent."""
    for pair in request.query.split("&"):
        key, _, value = pair.partition("=")
        if key == "format":
            return value
    return None


class MissingHeaderError(InferenceError):
    """An inference request without its header: the only malformed request that the original server explains,
    in the body of its answer."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.MALFORMED, f"missing header {REQUEST} in an inference request")


def read_header(request: HttpRequest) -> Any:
    """The ``InferRequestHeader`` of ``request``. Raises MALFORMED, ``MissingHeaderError`` if there is
    none."""
    given = request.headers.get(REQUEST.lower())
    if given is None:
        raise MissingHeaderError
    return read(codec.REQUEST_HEADER, given)


def decode_request(
    request: HttpRequest, header: Any, model: str, version: str, signature: Signature
) -> tuple[InferRequest, TrtisHttpReplyForm]:
    """The request with ``header``, its inputs in the body, and the form of its answer.

    Raises as :func:`protocols.trtis.codec.decode_request`, INVALID_TENSOR for a body too short or long.
    """
    body = memoryview(request.body).toreadonly()
    position = 0

    def take(name: str, size: int) -> memoryview:
        nonlocal position
        start, position = position, position + size
        if position > len(body):
            raise invalid_tensor(
                f"unexpected size for input '{name}', expecting {position - len(body)} bytes "
                f"for model '{model}'"
            )
        return body[start:position]

    decoded, form = codec.decode_request(
        header, model, version, signature, request.context, take, shared_memory_size="shared-memory size"
    )
    if position < len(body):
        raise invalid_tensor(f"unexpected additional input data for model '{model}'")
    return decoded, TrtisHttpReplyForm(form, query_format(request) == "binary")


def encode_response(form: TrtisHttpReplyForm, response: InferResponse) -> HttpAnswer:
    """The answer, outputs in the requested order. Raises as :func:`protocols.trtis.codec.encode_response`."""
    header, parts = codec.encode_response(form.form, response)
    if form.binary:
        parts.append(header.SerializeToString())
    else:
        parts.append(text_format.MessageToString(header, as_utf8=False).encode())
    headers: Headers = (
        (RESPONSE, write_response_header(header)),
        (STATUS, success_text(form.form.context)),
        BINARY,
    )
    return HttpAnswer(200, headers, parts)


def numbered(headers: Headers, context: Context) -> Headers:
    """See ``Action``."""
    (response, _, binary) = headers
    return response, (STATUS, success_text(context)), binary


def success_text(context: Context) -> str:
    """The status of a success, cached up to the request number at its end."""
    text = _remembered_success(context.server_id)
    return f"{text} request_id: {context.request_number}" if context.request_number else text


@lru_cache(8)
def _remembered_success(server_id: str) -> str:
    return write_status(success(Context(server_id=server_id)))
