"""The calls of the sample."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.wire import HttpCall, HttpReply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    Signature,
)
from tests.sample_dialect.codec import JSON, read, read_signature, read_tensors, write, write_tensors


def _path(model: str, version: str) -> str:
    if version:
        raise InferenceError(ErrorCode.UNREPRESENTABLE, "the dialect 'sample' has no versions")
    return f"/v1/models/{quote(model, safe='')}"


def _get(path: str) -> Any:
    def encode(model: ModelRef, signature: Signature | None) -> tuple[HttpCall, str]:
        return HttpCall("GET", _path(model.name, model.version) + path), model.name

    return encode


def _encode(request: InferRequest, signature: Signature | None) -> tuple[HttpCall, str]:
    body = write({"inputs": write_tensors(request.inputs)})
    path = f"{_path(request.model, request.version)}:predict"
    return HttpCall("POST", path, headers=JSON, parts=[body]), request.model


def _document(reply: HttpReply) -> dict[str, Any]:
    """The document in ``reply``. Raises the error in it, or BAD_UPSTREAM."""
    try:
        document = read(reply.body)
        error = (
            InferenceError(ErrorCode(document["code"]), document["error"]) if "error" in document else None
        )
    except (ValueError, LookupError, InferenceError) as fault:
        raise _bad(fault) from fault
    if error is not None:
        raise error
    return document


def _bad(error: Exception) -> InferenceError:
    return InferenceError(ErrorCode.BAD_UPSTREAM, f"gave an answer that cannot be read: {error}")


def _decode(model: str, reply: HttpReply) -> InferResponse:
    document = _document(reply)
    try:
        return InferResponse(model, read_tensors(document["outputs"]))
    except (LookupError, AttributeError, InferenceError) as error:
        raise _bad(error) from error


def _decode_ready(model: str, reply: HttpReply) -> Readiness:
    document = _document(reply)
    return Readiness(document.get("ready") is True, document.get("reason", ""))


def _decode_metadata(model: str, reply: HttpReply) -> ModelMetadata:
    document = _document(reply)
    try:
        versions = tuple(document["versions"])
        return ModelMetadata(document["name"], read_signature(document), versions, document["platform"])
    except (LookupError, TypeError, ValueError) as error:
        raise _bad(error) from error


CALLS = {
    Operation.INFER: UpstreamCall(_encode, _decode),
    Operation.MODEL_READY: UpstreamCall(_get(""), _decode_ready),
    Operation.MODEL_METADATA: UpstreamCall(_get("/metadata"), _decode_metadata),
}
