"""The context of a call, and its message: the payload without its attachment, decompressed.

A short one is decompressed at once, a long one in a thread. ``unpack`` and ``inflate`` set it in the request,
or return the refusal of a message that is malformed, with the original's error numbers and texts.
"""

from __future__ import annotations

import time

from interlingua.protocols.brpc_status import BrpcStatus, unparsable
from interlingua.protocols.content_coding import SHORT_BYTES
from interlingua.protocols.transport.brpc.compression import decompress
from interlingua.protocols.transport.brpc.frame import Meta
from interlingua.protocols.transport.brpc.refusals import overloaded
from interlingua.protocols.transport.threads import in_thread
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest
from interlingua.schemas import Context, ErrorCode, InferenceError
from interlingua.schemas.offload import CLIENT, DecodingLimits

_CONTENT_TYPES = {1: "json", 2: "proto_json", 3: "proto_text"}
"""Of messages that are not protobuf, in the words of brpc."""


def context_of(meta: Meta, peer: str, identity: str | None) -> Context:
    """The context of a call by ``peer``, whose certificate has the name ``identity``."""
    context = Context(peer=peer, headers=meta.headers, identity=identity)
    if headers := meta.headers:
        context.traceparent = headers.get("traceparent", "")
        context.tracestate = headers.get("tracestate", "")
    if meta.timeout_ms > 0:
        context.deadline = time.monotonic() + meta.timeout_ms / 1000
    return context


def unpack(request: BrpcRequest, meta: Meta, most: int, limits: DecodingLimits) -> BrpcAnswer | None:
    """Leave the attachment out and decompress a short message, to ``most`` bytes at most.

    ``meta.compress_type`` becomes 0 then; of a long message it stays, for ``inflate``.
    """
    if meta.content_type:
        name = _CONTENT_TYPES.get(meta.content_type, "unknown")
        text = f"content_type={meta.content_type} ({name}) is not supported: messages are protobuf"
        return BrpcAnswer(code=BrpcStatus.EREQUEST, text=text)
    attached, payload = meta.attachment_size, memoryview(request.message)
    if attached > request.size:
        return BrpcAnswer(
            code=BrpcStatus.EREQUEST,
            text=f"attachment_size={attached} is larger than request_size={request.size}",
        )
    if attached > 0:  # the original ignores a negative size
        payload = payload[: request.size - attached]
    request.message = payload
    if meta.compress_type and len(payload) <= SHORT_BYTES:
        try:
            request.message = decompress(meta.compress_type, payload, most, limits)
        except InferenceError as error:
            return _refusal(request, error)
        meta.compress_type = 0
    return None


async def inflate(
    request: BrpcRequest, compress_type: int, most: int, limits: DecodingLimits, client: str
) -> BrpcAnswer | None:
    """Decompress a long message in a thread, to ``most`` bytes at most, on behalf of ``client``."""
    CLIENT.set(client)
    try:
        request.message = await in_thread(
            limits, decompress, compress_type, memoryview(request.message), most, limits
        )
    except InferenceError as error:
        return _refusal(request, error)
    return None


def _refusal(request: BrpcRequest, error: InferenceError) -> BrpcAnswer:
    if error.code is ErrorCode.OVERLOADED:
        return overloaded(error.message)
    if error.code is ErrorCode.TOO_LARGE:
        return BrpcAnswer(code=BrpcStatus.EREQUEST, text=error.message)
    return unparsable(request)
