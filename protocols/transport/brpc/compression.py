"""Messages of baidu_std that are compressed, as requests and replies of other servers may be.

Contract: memory is bounded by the limit and by what arrived, never by what compressed data claims. The
original accepts any ratio, so ``max_compression_ratio`` does not apply. Nothing is compressed here: the
original's answers never are.
"""

from __future__ import annotations

from dataclasses import replace

import cramjam

from interlingua.protocols.content_coding import inflate, most_inflated, too_large
from interlingua.protocols.wire import Buffer
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits

NAMES = ("none", "snappy", "gzip", "zlib")
"""The types by their number on the wire, in the words of the original."""

_SNAPPY = 1
_CODINGS = {2: "gzip", 3: "deflate"}

_DEFLATE_RATIO = 1032
"""The highest of deflate."""

_SNAPPY_RATIO = 22
"""A snappy element of three bytes yields at most 64: a larger claim is not snappy."""


def name_of(compress_type: int) -> str:
    """What the original calls a type of compression."""
    return NAMES[compress_type] if 0 <= compress_type < len(NAMES) else "unknown"


def most_decompressed(size: int, limit: int, limits: DecodingLimits) -> int:
    """The largest size of a message that has ``size`` bytes while it is compressed."""
    return most_inflated(size, limit, replace(limits, max_compression_ratio=_DEFLATE_RATIO))


def decompress(
    compress_type: int, data: memoryview, limit: int, limits: DecodingLimits = DEFAULT_LIMITS
) -> Buffer:
    """``data`` as it was before; itself where it is not compressed. ``limit`` is in bytes and applies with
    ``limits``.

    Raises UNSUPPORTED for an unknown type, MALFORMED for data that is not of its type, TOO_LARGE.
    """
    if compress_type == 0:
        return data
    if compress_type in _CODINGS:
        limits = replace(limits, max_compression_ratio=_DEFLATE_RATIO)
        return inflate(_CODINGS[compress_type], data, limit, limits)
    if compress_type == _SNAPPY:
        return _unsnap(data, limit, limits)
    raise InferenceError(ErrorCode.UNSUPPORTED, f"compression type {compress_type} is unknown")


def _unsnap(data: memoryview, limit: int, limits: DecodingLimits) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        most = min(limit, limits.max_decompressed_bytes)
        if size > most:
            raise too_large("snappy", most, limit, limits)
        if size > _SNAPPY_RATIO * len(data):
            raise InferenceError(ErrorCode.MALFORMED, f"{len(data)} bytes of snappy cannot be {size} bytes")
        plain = bytearray(size)
        cramjam.snappy.decompress_raw_into(data, plain)
        return plain
    except cramjam.DecompressionError as fault:
        raise InferenceError(ErrorCode.MALFORMED, f"the message is not snappy data: {fault}") from None
