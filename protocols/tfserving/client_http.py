"""REST calls to an upstream, and its answers.

Servers of the flavor ``kserve`` get rows, as their models expect them, and describe no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.path_table import segment_of_model, segment_of_version
from interlingua.protocols.tfserving.codec import CODE_OF_HTTP_STATUS, NO_MODEL, version_number
from interlingua.protocols.tfserving.codec_http import decode_response, encode_request, parse_object
from interlingua.protocols.tfserving.metadata import read_document as read_metadata
from interlingua.protocols.tfserving.status import read_document as read_states
from interlingua.protocols.tfserving.status import readiness, status_of
from interlingua.protocols.upstream_reply import read_reply
from interlingua.protocols.wire import Buffer, HttpCall, HttpReply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    ModelStatus,
    Readiness,
    ServerMetadata,
    ServerStatus,
    Signature,
    bad_upstream,
    malformed,
)

T = TypeVar("T")

Call = UpstreamCall[HttpCall, HttpReply]
Form = tuple[str, Signature | None]

_HEADERS: Mapping[str, str] = {"Content-Type": "application/json"}
_LONGEST_TEXT = 2000
"""The limit of an upstream's plain-text error, in characters."""

_NOT_READY = frozenset({404, 503})
_READY_WORDS = (True, "True", "true")
"""Older servers of KServe answer with text."""


@lru_cache(256)
def path_of(model: str, version: str) -> str:
    """The path of ``version``, or a label, of ``model``. Raises as ``path_table``."""
    path = f"/v1/models/{segment_of_model(model)}"
    if not version:
        return path
    kind = "labels" if version_number(version) is None else "versions"
    return f"{path}/{kind}/{segment_of_version(version)}"


def checked(reply: HttpReply, read: Callable[..., T], *arguments: Any) -> T:
    """The result of ``read(*arguments)`` on an answer. Raises the upstream's own error for a status other
    than 200, BAD_UPSTREAM for an invalid answer."""
    if reply.status != 200:
        code = CODE_OF_HTTP_STATUS.get(reply.status, ErrorCode.BAD_UPSTREAM)
        raise InferenceError(code, _error_text(reply))
    return read_reply(read, *arguments)


def _error_text(reply: HttpReply) -> str:
    try:
        document = parse_object(reply.body)
    except InferenceError:
        words: Any = bytes(reply.body).decode(errors="replace")[:_LONGEST_TEXT].strip()
    else:
        words = document.get("error", document.get("detail"))
    if not isinstance(words, str) or not words:
        return f"the upstream answered HTTP status {reply.status} and no reason"
    return words


# --- inference


def _encode_predict(
    request: InferRequest, signature: Signature | None, *, by_row: bool
) -> tuple[HttpCall, Form]:
    body = encode_request(request, signature, by_row=by_row)
    path = f"{path_of(request.model, request.version)}:predict"
    return HttpCall("POST", path, headers=_HEADERS, parts=[body]), (request.model, signature)


def _decode_predict(form: Form, reply: HttpReply) -> InferResponse:
    return checked(reply, decode_response, *form, reply.body)


# --- everything else


def _get(path: str) -> Callable[[Any, Signature | None], tuple[HttpCall, Any]]:
    return lambda argument, signature: (HttpCall("GET", path), argument)


def _get_of_model(
    model: ModelRef, signature: Signature | None, suffix: str = ""
) -> tuple[HttpCall, ModelRef]:
    return HttpCall("GET", f"{path_of(model.name, model.version)}{suffix}"), model


def _decode_reachable(form: None, reply: HttpReply) -> Readiness:
    """A server has no readiness of its own, and any answer but an error of the server shows that it works,
    except the list of a server of KServe that has no ready model."""
    if reply.status >= 500:
        return Readiness(False, _error_text(reply))
    if reply.status == 200 and _lists_nothing(reply.body):
        return Readiness(False, "no model is ready")
    return Readiness(True)


def _lists_nothing(body: Buffer) -> bool:
    try:
        return not _read_list(body)
    except InferenceError:
        return False  # another answer


def _decode_live(form: None, reply: HttpReply) -> Readiness:
    """As :func:`_decode_server`: any other server is not of the dialect."""
    _decode_server(form, reply)
    return Readiness(True)


def _decode_server(form: None, reply: HttpReply) -> ServerMetadata:
    """The server by its flavor: KServe's list models, the original refuses a request that names none. Raises
    BAD_UPSTREAM for any other answer."""
    if reply.status == 200:
        read_reply(_read_list, reply.body)
        return ServerMetadata("kserve", "")
    if reply.status == 400 and _error_text(reply).startswith(NO_MODEL):
        return ServerMetadata("tensorflow", "")
    raise bad_upstream(f"not an answer of this dialect: HTTP status {reply.status}")


def _decode_ready(model: ModelRef, reply: HttpReply) -> Readiness:
    if reply.status in _NOT_READY:
        return Readiness(False, _error_text(reply))
    return checked(reply, _read_ready, model, reply.body)


def _read_ready(model: ModelRef, body: Buffer) -> Readiness:
    document = parse_object(body)
    if "ready" in document:
        ready = document["ready"] in _READY_WORDS
        return Readiness(ready, "" if ready else f"model '{model.name}' is not ready")
    return readiness(model, read_states(document))


def _decode_versions(model: ModelRef, reply: HttpReply) -> ServerStatus:
    return checked(reply, _read_versions, model, reply.body)


def _read_versions(model: ModelRef, body: Buffer) -> ServerStatus:
    """The versions; none from a server of KServe, which reports its readiness."""
    document = parse_object(body)
    return status_of(model.name, () if "ready" in document else read_states(document))


def _decode_metadata(model: ModelRef, reply: HttpReply) -> ModelMetadata:
    return checked(reply, lambda: read_metadata(model.name, parse_object(reply.body)))


def _decode_list(form: None, reply: HttpReply) -> tuple[ModelStatus, ...]:
    return checked(reply, _read_list, reply.body)


def _read_list(body: Buffer) -> tuple[ModelStatus, ...]:
    names = parse_object(body).get("models")
    if type(names) is not list or not all(type(name) is str for name in names):
        raise malformed("the answer has no list of models")
    return tuple(map(ModelStatus, names))


SERVER_CALL: Call = UpstreamCall(_get("/v1/models"), _decode_server)
LIVE_CALL: Call = UpstreamCall(_get("/v1/models"), _decode_live)
REACHABLE_CALL: Call = UpstreamCall(_get("/v1/models"), _decode_reachable)
LIST_CALL: Call = UpstreamCall(_get("/v1/models"), _decode_list)
READY_CALL: Call = UpstreamCall(_get_of_model, _decode_ready)
STATUS_CALL: Call = UpstreamCall(_get_of_model, _decode_versions)
METADATA_CALL: Call = UpstreamCall(partial(_get_of_model, suffix="/metadata"), _decode_metadata)
PREDICT_CALL: Call = UpstreamCall(partial(_encode_predict, by_row=False), _decode_predict)
ROWS_CALL: Call = UpstreamCall(partial(_encode_predict, by_row=True), _decode_predict)
