"""Bodies that came compressed: gzip and deflate (RFC 9110: the zlib format), within a limit.

Contract: memory is bounded by the limit, not by what the compressed data claims. Which codings a
dialect accepts, and where, belongs to the dialect.
"""

from __future__ import annotations

import zlib

from protocols.wire import Buffer
from schemas import ErrorCode, InferenceError

WINDOW_BITS = {"gzip": 31, "deflate": 15}
"""The codings, and how zlib is told which of its formats to expect."""


def inflate(coding: str, body: Buffer, limit: int | None) -> bytes:
    """``body`` decompressed; ``coding`` is a key of :data:`WINDOW_BITS`, ``limit`` is in bytes.

    Raises MALFORMED for data that is cut short, followed by other bytes, or not in that coding;
    TOO_LARGE for more than ``limit`` bytes.
    """
    inflater = zlib.decompressobj(WINDOW_BITS[coding])
    try:
        plain = inflater.decompress(body, 0 if limit is None else limit + 1)
    except zlib.error as fault:
        raise InferenceError(ErrorCode.MALFORMED, f"the body is not {coding} data: {fault}") from None
    if limit is not None and len(plain) > limit:
        raise InferenceError(
            ErrorCode.TOO_LARGE, f"the {coding} body has more than {limit} bytes when decompressed"
        )
    if not inflater.eof:
        raise InferenceError(ErrorCode.MALFORMED, f"the {coding} body is cut short")
    if inflater.unused_data:
        raise InferenceError(
            ErrorCode.MALFORMED,
            f"the {coding} body is followed by {len(inflater.unused_data)} bytes of something else",
        )
    return plain
