"""Messages that limits of ours keep from being decompressed."""

from __future__ import annotations

from interlingua.protocols.transport.address import Url
from interlingua.schemas import ErrorCode, InferenceError


def is_limit(fault: InferenceError) -> bool:
    """Whether ``inflate`` failed at a limit on decompression, or without a thread or memory for it."""
    return fault.code is ErrorCode.OVERLOADED or "option" in fault.details


def limited_answer(url: Url, fault: InferenceError) -> InferenceError:
    """The error of a call to the upstream at ``url``, for whose answer :func:`is_limit` holds: OVERLOADED or
    TOO_LARGE."""
    if fault.code is ErrorCode.OVERLOADED:
        what = "answered, but the answer cannot be decompressed now"
    else:
        what = "gave an answer that is too large"
    return InferenceError(fault.code, f"the upstream at {url} {what}: {fault.message}", begun=True)
