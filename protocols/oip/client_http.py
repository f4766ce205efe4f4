"""Inference as a client over HTTP: the call, and its answer or error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import quote

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.oip.codec import CODE_OF_HTTP_STATUS
from interlingua.protocols.oip.codec_http import decode_response, encode_request
from interlingua.protocols.oip.metadata_json import read_error
from interlingua.protocols.upstream_reply import read_reply
from interlingua.protocols.wire import Buffer, HttpCall, HttpReply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    SharedMemoryRef,
    Signature,
    unrepresentable,
)

T = TypeVar("T")

Placements = Mapping[str, SharedMemoryRef]

_NO_PLACEMENTS: Placements = {}


@lru_cache(256)
def model_path(model: str, version: str) -> str:
    """The path of ``version`` of ``model``. Raises UNREPRESENTABLE for names that are not Unicode text."""
    try:
        path = f"/v2/models/{quote(model, safe='')}"
        return f"{path}/versions/{quote(version, safe='')}" if version else path
    except UnicodeEncodeError:
        raise unrepresentable(
            f"the model name {model!a} or version {version!a} is not Unicode text"
        ) from None


def infer_call(model: str, version: str, headers: Mapping[str, str], parts: list[Buffer]) -> HttpCall:
    """The call with a body in ``parts``."""
    return HttpCall("POST", f"{model_path(model, version)}/infer", headers=headers, parts=parts)


def http_answer(reply: HttpReply, read: Callable[..., T], *arguments: Any) -> T:
    """The result of ``read(*arguments)`` on an answer. Raises the upstream's own error for a status other
    than 200, BAD_UPSTREAM for an invalid answer."""
    if reply.status != 200:
        code = CODE_OF_HTTP_STATUS.get(reply.status, ErrorCode.BAD_UPSTREAM)
        raise InferenceError(code, read_error(reply.status, reply.body))
    return read_reply(read, *arguments)


def _encode(
    request: InferRequest, signature: Signature | None, *, binary: bool
) -> tuple[HttpCall, Placements]:
    headers, parts = encode_request(request, binary=binary)
    placements = _NO_PLACEMENTS
    if request.outputs:
        placements = {output.name: output.placement for output in request.outputs if output.placement}
    return infer_call(request.model, request.version, dict(headers), parts), placements


def decode_infer(placements: Placements, reply: HttpReply) -> InferResponse:
    """The response in ``reply``. Raises as :func:`http_answer`."""
    return http_answer(reply, decode_response, reply.headers, reply.body, placements)


INFER_CALL: UpstreamCall[HttpCall, HttpReply] = UpstreamCall(partial(_encode, binary=True), decode_infer)

JSON_INFER_CALL: UpstreamCall[HttpCall, HttpReply] = UpstreamCall(
    partial(_encode, binary=False), decode_infer
)
"""For servers without the binary tensor data extension."""
