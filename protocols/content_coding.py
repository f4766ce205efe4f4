"""Bodies that are compressed: gzip and deflate (RFC 9110: the zlib format), in both directions.

The limit bounds memory, whatever compressed data claim.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import lru_cache

from interlingua.protocols.wire import Buffer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError, malformed

WINDOW_BITS = {"gzip": 31, "deflate": 15}
"""The codings with zlib's code for each format."""

_LEVEL = 1
"""The fastest level: nearly as small, and each answer is read once."""

_SHORT = 256
"""Up to this size a header is cached."""


def inflate(coding: str, body: Buffer, limit: int | None) -> bytes:
    """``body`` decompressed; ``coding`` is a key of :data:`WINDOW_BITS`, ``limit`` is in bytes.

    Raises MALFORMED for data that is truncated, followed by other bytes, or not in that coding; TOO_LARGE for
    more than ``limit`` bytes.
    """
    inflater = zlib.decompressobj(WINDOW_BITS[coding])
    try:
        plain = inflater.decompress(body, 0 if limit is None else limit + 1)
    except zlib.error as fault:
        raise malformed(f"the body is not {coding} data: {fault}") from None
    if limit is not None and len(plain) > limit:
        raise InferenceError(
            ErrorCode.TOO_LARGE, f"the {coding} body has more than {limit} bytes when decompressed"
        )
    if not inflater.eof:
        raise malformed(f"the {coding} body is cut short")
    if inflater.unused_data:
        raise malformed(
            f"the {coding} body is followed by {len(inflater.unused_data)} bytes of something else"
        )
    return plain


def plain_body(request: HttpRequest) -> Buffer:
    """The body of a request without its ``Content-Encoding``. Raises UNSUPPORTED, which names the coding, for
    an unknown one, and as :func:`inflate`."""
    coding = request.headers.get("content-encoding")
    if not coding or coding == "identity":
        return request.body
    if coding not in WINDOW_BITS:
        raise InferenceError(
            ErrorCode.UNSUPPORTED,
            f"Unsupported compression type: Content-Encoding may be {' or '.join(WINDOW_BITS)}, not "
            f"{coding[:_SHORT]}",
            details={"accept_encoding": ", ".join(WINDOW_BITS)},
        )
    return inflate(coding, request.body, request.max_body_bytes)


def deflate(coding: str, parts: Iterable[Buffer]) -> list[Buffer]:
    """``parts`` as one body compressed in ``coding``, a key of :data:`WINDOW_BITS`, in new parts."""
    deflater = zlib.compressobj(_LEVEL, wbits=WINDOW_BITS[coding])
    written: list[Buffer] = [deflater.compress(part) for part in parts]
    written.append(deflater.flush())
    return written


def accepted_coding(header: str) -> str:
    """The preferred coding of an ``Accept-Encoding``, the first of equals; empty for none. Like Triton this
    ignores ``*`` and unknown codings."""
    if not header:
        return ""
    return _remembered_coding(header) if len(header) <= _SHORT else _coding_in(header)


def _coding_in(header: str) -> str:
    best, most = "", 0.0
    for entry in header.split(","):
        name, _, weight = entry.partition(";")
        name = name.strip()
        if name not in WINDOW_BITS and name != "identity":
            continue
        key, _, value = weight.partition("=")
        try:
            quality = float(value) if key.strip() == "q" else 1.0
        except ValueError:
            continue
        if quality > most:
            best, most = name, quality
    return "" if best == "identity" else best


# clients repeat it with every request
_remembered_coding = lru_cache(64)(_coding_in)
