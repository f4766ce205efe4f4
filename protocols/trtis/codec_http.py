"""Inference over HTTP: the message in headers, tensors in the body.

A request has its header in ``NV-InferRequest`` and the inputs, one after the other, as its body; header
and model determine their sizes. An answer's body has the outputs, then a copy of the ``InferResponseHeader``,
binary or as text. Tensors are views over the received body, and a written body is a list of parts. Paths
belong to ``server``, the text of headers to ``header_text``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf import text_format

from interlingua.protocols.repeated import BySignature, Described, repeated_form
from interlingua.protocols.trtis import codec
from interlingua.protocols.trtis.header_text import read, write_response_header, write_status
from interlingua.protocols.trtis.status import success
from interlingua.protocols.wire import Buffer, Headers, HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    SharedMemoryRef,
    Signature,
    Tensor,
    invalid_tensor,
)

REQUEST, RESPONSE, STATUS = "NV-InferRequest", "NV-InferResponse", "NV-Status"
"""The headers with messages."""

BINARY: tuple[str, str] = ("Content-Type", "application/octet-stream")

_SHORT = 4096
"""Clients repeat a header with other tensors. Headers up to this size are cached, which saves a fifth of the
cost of small requests."""


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


class _Request(NamedTuple):
    """What is read from a header; the inputs have ``size`` bytes."""

    inputs: tuple[Described, ...]
    outputs: tuple[RequestedOutput, ...]
    batch_size: int
    size: int


_REQUESTS: BySignature[_Request] = BySignature()
_ANSWERS: BySignature[tuple[str, Buffer]] = BySignature()
"""Recent requests by the text of their headers, and the headers of recent answers by their outputs."""


class MissingHeaderError(InferenceError):
    """An inference request without its header: the only malformed request that the original server explains,
    in the body of its answer."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.MALFORMED, f"missing header {REQUEST} in an inference request")


def read_header(request: HttpRequest) -> Any:
    """The ``InferRequestHeader`` of ``request``; read-only, because requests may share it. Raises MALFORMED,
    ``MissingHeaderError`` if there is none."""
    given = request.headers.get(REQUEST.lower())
    if given is None:
        raise MissingHeaderError
    return _remembered_request(given) if len(given) <= _SHORT else read(codec.REQUEST_HEADER, given)


def decode_request(
    request: HttpRequest, header: Any, model: str, version: str, signature: Signature
) -> tuple[InferRequest, TrtisHttpReplyForm]:
    """The request with ``header``, its inputs in the body, and the form of its answer.

    Raises as :func:`protocols.trtis.codec.decode_request`, INVALID_TENSOR for a body too short or long.
    """
    body = memoryview(request.body).toreadonly()
    text = request.headers[REQUEST.lower()]
    known = _REQUESTS.get(signature, text)
    if known is not None and known.size == len(body):
        return _repeated(known, request, body, model, version, signature)
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
    found = repeated_form(decoded)
    if found is not None and len(text) <= _SHORT and not _has_texts(found[0]):
        known = _Request(found[0], form.outputs, form.batch_size, len(body))
        _REQUESTS.put(signature, text, known)
    return decoded, TrtisHttpReplyForm(form, query_format(request) == "binary")


def _has_texts(tensors: Sequence[Described]) -> bool:
    return any(datatype is Datatype.BYTES for _, datatype, *_ in tensors)


def _repeated(
    known: _Request, request: HttpRequest, body: memoryview, model: str, version: str, signature: Signature
) -> tuple[InferRequest, TrtisHttpReplyForm]:
    """As :func:`decode_request`, for a ``known`` header."""
    inputs, position = [], 0
    for name, datatype, shape, size in known.inputs:
        inputs.append(Tensor(name, datatype, shape, body[position : (position := position + size)]))
    context = request.context
    decoded = InferRequest(model, tuple(inputs), known.outputs, version, context=context)
    form = codec.TrtisReplyForm(0, known.batch_size, known.outputs, signature, context)
    return decoded, TrtisHttpReplyForm(form, query_format(request) == "binary")


def encode_response(form: TrtisHttpReplyForm, response: InferResponse) -> HttpAnswer:
    """The answer, outputs in the requested order. Raises as :func:`protocols.trtis.codec.encode_response`."""
    described = _described(form.form, response.outputs)
    if described is None:
        return _encoded(form, response)
    key = response.model, response.version, form.form.batch_size, form.binary, described
    known = _ANSWERS.get(form.form.signature, key)
    if known is None:
        answer = _encoded(form, response)
        (_, text), *_ = answer.headers
        if len(text) <= _SHORT:
            _ANSWERS.put(form.form.signature, key, (text, parts_of(answer)[-1]))
        return answer
    text, copy = known
    headers: Headers = ((RESPONSE, text), (STATUS, success_text(form.form.context)), BINARY)
    return HttpAnswer(200, headers, [*[tensor.view for tensor in response.outputs], copy])


def _described(form: codec.TrtisReplyForm, outputs: Sequence[Tensor]) -> tuple[Described, ...] | None:
    """``outputs``, if they are those of ``form`` in its order and their headers repeat."""
    if form.id or len(outputs) != len(form.outputs):
        return None
    described = []
    for requested, tensor in zip(form.outputs, outputs, strict=True):
        data = tensor.data
        if requested.name != tensor.name or requested.classification or isinstance(data, SharedMemoryRef):
            return None
        described.append((tensor.name, tensor.datatype, tensor.shape, len(data)))
    return tuple(described)


def _encoded(form: TrtisHttpReplyForm, response: InferResponse) -> HttpAnswer:
    header, parts = codec.encode_response(form.form, response)
    data = header.SerializeToString()
    if form.binary:
        parts.append(data)
    else:
        parts.append(text_format.MessageToString(header, as_utf8=False).encode())
    headers: Headers = (
        (RESPONSE, _remembered_response(data) if len(data) <= _SHORT else write_response_header(header)),
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


@lru_cache(256)
def _remembered_request(text: str) -> Any:
    return read(codec.REQUEST_HEADER, text)


@lru_cache(256)
def _remembered_response(data: bytes) -> str:
    return write_response_header(codec.RESPONSE_HEADER.FromString(data))
