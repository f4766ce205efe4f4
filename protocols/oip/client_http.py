"""Inference as a client over HTTP: the call, and its answer or error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.oip.codec import CODE_OF_HTTP_STATUS
from interlingua.protocols.oip.codec_http import decode_response, encode_request
from interlingua.protocols.oip.metadata_json import read_error
from interlingua.protocols.path_table import segment_of_model, segment_of_version
from interlingua.protocols.upstream_reply import read_reply
from interlingua.protocols.wire import Buffer, HttpCall, HttpReply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    SharedMemoryRef,
    Signature,
)
from interlingua.schemas.version_number import version_number

T = TypeVar("T")

Placements = Mapping[str, SharedMemoryRef]

NO_FORM: tuple[Placements, str] = ({}, "")
"""The form of an answer whose request has neither placements nor a version in words."""

_UNKNOWN_PATH = "Not Found"
"""What a server says that knows no such path, rather than no such model."""


@lru_cache(256)
def model_path(model: str, version: str) -> str:
    """The path of ``version`` of ``model``. Raises as ``path_table``."""
    path = f"/v2/models/{segment_of_model(model)}"
    return f"{path}/versions/{segment_of_version(version)}" if version else path


def infer_call(model: str, version: str, headers: Mapping[str, str], parts: list[Buffer]) -> HttpCall:
    """The call with a body in ``parts``."""
    return HttpCall("POST", f"{model_path(model, version)}/infer", headers=headers, parts=parts)


def http_answer(reply: HttpReply, read: Callable[..., T], *arguments: Any, version: str = "") -> T:
    """The result of ``read(*arguments)`` on an answer about ``version``. Raises :func:`failure` for a status
    other than 200, BAD_UPSTREAM for an invalid answer."""
    if reply.status != 200:
        raise failure(reply, version)
    return read_reply(read, *arguments)


def failure(reply: HttpReply, version: str) -> InferenceError:
    """The upstream's own error in an answer about ``version``. Raises INVALID_TENSOR for a version that is no
    number: to Triton its path is unknown."""
    words = read_error(reply.status, bytes(reply.body))
    if reply.status == 404 and version and (words == _UNKNOWN_PATH or not reply.body):
        version_number(version)
    return InferenceError(CODE_OF_HTTP_STATUS.get(reply.status, ErrorCode.BAD_UPSTREAM), words)


def _encode(
    request: InferRequest, signature: Signature | None, *, binary: bool
) -> tuple[HttpCall, tuple[Placements, str]]:
    headers, parts = encode_request(request, binary=binary)
    placements = NO_FORM[0]
    if request.outputs:
        placements = {output.name: output.placement for output in request.outputs if output.placement}
    return infer_call(request.model, request.version, dict(headers), parts), (placements, request.version)


def decode_infer(form: tuple[Placements, str], reply: HttpReply) -> InferResponse:
    """The response in ``reply``. Raises as :func:`http_answer`."""
    placements, version = form
    return http_answer(reply, decode_response, reply.headers, reply.body, placements, version=version)


INFER_CALL: UpstreamCall[HttpCall, HttpReply] = UpstreamCall(partial(_encode, binary=True), decode_infer)

JSON_INFER_CALL: UpstreamCall[HttpCall, HttpReply] = UpstreamCall(
    partial(_encode, binary=False), decode_infer
)
"""For servers without the binary tensor data extension."""
