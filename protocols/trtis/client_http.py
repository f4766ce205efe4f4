"""Calls to an upstream over HTTP, and its replies.

Requests are those of the original client, with a blank after the colon of a header. In the body of an
inference's answer the tensors are followed by a copy of the header ``NV-InferResponse``, which is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.path_table import segment_of_model
from interlingua.protocols.trtis.client_codec import (
    LATEST,
    PendingCall,
    decode_response,
    encode_request,
    size_of,
    version_of,
)
from interlingua.protocols.trtis.client_status import check_status
from interlingua.protocols.trtis.codec import DIALECT_NAME, RESPONSE_HEADER
from interlingua.protocols.trtis.codec_http import REQUEST, RESPONSE, STATUS
from interlingua.protocols.trtis.header_text import read, write_request_header
from interlingua.protocols.trtis.status import REPOSITORY_INDEX, REQUEST_STATUS, SERVER_STATUS
from interlingua.protocols.upstream_reply import read_reply
from interlingua.protocols.wire import Buffer, HttpCall, HttpReply
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelRef,
    ModelStatus,
    Readiness,
    Signature,
    bad_upstream,
    not_carried,
)

T = TypeVar("T")

Call = UpstreamCall[HttpCall, HttpReply]

CODE_OF_HTTP_STATUS: Mapping[int, ErrorCode] = {
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    405: ErrorCode.UNSUPPORTED,
    413: ErrorCode.TOO_LARGE,
    429: ErrorCode.OVERLOADED,
    501: ErrorCode.UNSUPPORTED,
    503: ErrorCode.UNAVAILABLE,
    504: ErrorCode.DEADLINE_EXCEEDED,
}
"""The meaning of a status without an NV-Status, for instance from a proxy; any other is BAD_UPSTREAM."""

_BINARY = "format=binary"
_INFER_HEADERS = {"Content-Type": "application/octet-stream"}
_CONTROL_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
_LONGEST_TEXT = 2000

_SUCCESS = re.compile(r'code: SUCCESS(?: server_id: "[ !#-\[\]-~]*")?(?: request_id: [0-9]{1,19})?')
"""The status of nearly every answer; others are parsed."""

# servers do not decode a segment
_SEGMENT = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@%]+")


def _path(prefix: str, model: str) -> str:
    if not _SEGMENT.fullmatch(model):
        raise not_carried(
            DIALECT_NAME, f"the model name {model!a} over HTTP, where paths have names as they are"
        )
    segment_of_model(model)
    return f"{prefix}/{model}"


def succeeded(reply: HttpReply) -> None:
    """Raise the error in ``reply``, by its NV-Status if it has one."""
    given = reply.headers.get(STATUS.lower())
    if given is None:
        text = b"" if reply.status == 200 else bytes(reply.body[:_LONGEST_TEXT]).strip()
        raise InferenceError(
            CODE_OF_HTTP_STATUS.get(reply.status, ErrorCode.BAD_UPSTREAM),
            text.decode(errors="backslashreplace")
            or f"the upstream answered HTTP status {reply.status} without {STATUS}",
        )
    if _SUCCESS.fullmatch(given) is None:
        check_status(read_reply(lambda: read(REQUEST_STATUS, given)))
    if reply.status != 200:
        raise bad_upstream(f"the upstream reports success under HTTP status {reply.status}")


def _body(message_type: Any, reply: HttpReply) -> Any:
    try:
        return message_type.FromString(reply.body)
    except DecodeError as error:
        raise bad_upstream(f"the upstream's answer is no {message_type.DESCRIPTOR.name}: {error}") from error


# --- inference


def _encode_infer(request: InferRequest, signature: Signature | None) -> tuple[HttpCall, PendingCall]:
    header, parts, pending = encode_request(request, signature)
    text = write_request_header(header)
    return infer_call(request.model, request.version, _BINARY, text, parts), pending


def infer_call(model: str, version: str, query: str, header: str, parts: Sequence[Buffer]) -> HttpCall:
    """The call with the text of its header and the inputs in ``parts``. Raises UNREPRESENTABLE for a model or
    version without a form."""
    path = _path("/api/infer", model)
    number = version_of(version, model)
    if number != LATEST:
        path = f"{path}/{number}"
    return HttpCall("POST", path, query, {REQUEST: header, **_INFER_HEADERS}, parts=parts)


def decode_infer(pending: PendingCall, reply: HttpReply) -> InferResponse:
    """The response in ``reply``. Raises the upstream's error, BAD_UPSTREAM for an invalid answer."""
    succeeded(reply)
    given = reply.headers.get(RESPONSE.lower())
    if given is None:
        raise bad_upstream(f"the upstream answered without {RESPONSE}")
    return read_reply(_read_infer, pending, given, reply)


def _read_infer(pending: PendingCall, given: str, reply: HttpReply) -> InferResponse:
    rest = memoryview(reply.body).toreadonly()

    def take(name: str, datatype: Datatype, count: int) -> memoryview:
        nonlocal rest
        size = size_of(name, datatype, count, rest)
        contents, rest = rest[:size], rest[size:]
        return contents

    return decode_response(pending, read(RESPONSE_HEADER, given), take)


# --- all that is not inference


def health_call(mode: str) -> Call:
    """Whether the server is ``live`` or ``ready``: a ``Readiness``."""
    return UpstreamCall(_get(f"/api/health/{mode}"), _decode_health)


def _get(path: str) -> Callable[[None, Signature | None], tuple[HttpCall, None]]:
    return lambda argument, signature: (HttpCall("GET", path, _BINARY), None)


def _decode_health(form: None, reply: HttpReply) -> Readiness:
    """By the HTTP status: NV-Status reports the success of the probe itself."""
    if reply.status == 200:
        return Readiness(True)
    given = reply.headers.get(STATUS.lower())
    status = read_reply(lambda: read(REQUEST_STATUS, given)) if given is not None else REQUEST_STATUS()
    return Readiness(False, status.msg or f"the upstream answered HTTP status {reply.status}")


def status_call(read_status: Callable[[Any, Any], T]) -> Call:
    """The status of a model, or of the server for None, as read by ``read_status``."""

    def decode(model: ModelRef | None, reply: HttpReply) -> T:
        succeeded(reply)
        return read_status(_body(SERVER_STATUS, reply), model)

    return UpstreamCall(_encode_status, decode)


def _encode_status(model: ModelRef | None, signature: Signature | None) -> tuple[HttpCall, ModelRef | None]:
    path = _path("/api/status", model.name) if model is not None else "/api/status"
    if model is not None:
        version_of(model.version, model.name)
    return HttpCall("GET", path, _BINARY), model


def _decode_index(form: None, reply: HttpReply) -> tuple[ModelStatus, ...]:
    succeeded(reply)
    return tuple([ModelStatus(model.name) for model in _body(REPOSITORY_INDEX, reply).models])


def control_call(kind: str) -> Call:
    """A ``load`` or ``unload`` of a model."""

    def encode(model: ModelRef, signature: Signature | None) -> tuple[HttpCall, None]:
        path = _path(f"/api/modelcontrol/{kind}", model.name)
        return HttpCall("POST", path, headers=_CONTROL_HEADERS), None

    return UpstreamCall(encode, lambda form, reply: succeeded(reply))


INFER_CALL: Call = UpstreamCall(_encode_infer, decode_infer, alike={STATUS.lower(): _SUCCESS})
INDEX_CALL: Call = UpstreamCall(_get("/api/repository/index"), _decode_index)
