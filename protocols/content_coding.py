"""Bodies that are compressed: gzip and deflate (RFC 9110: the zlib format), in both directions.

The limit bounds memory, whatever compressed data claim.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import lru_cache

from interlingua.protocols.wire import Buffer, HttpRequest
from interlingua.schemas import ErrorCode, InferenceError, malformed, offload
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits

WINDOW_BITS = {"gzip": 31, "deflate": 15}
"""The codings with zlib's code for each format."""

SHORT_BYTES = 1 << 10
"""Compressed data of so many bytes have about 1 MiB at most: less than about 2 ms of work, and within the
limits."""

_ANY_RATIO_BYTES = 1 << 20
"""Up to this size after decompression any ratio is allowed."""

_LEVEL = 1
"""The fastest level: nearly as small, and each answer is read once."""

_SHORT_HEADER = 256
"""Up to this size a header is cached."""


def inflate(coding: str, body: Buffer, limit: int | None, limits: DecodingLimits = DEFAULT_LIMITS) -> bytes:
    """``body`` decompressed; ``coding`` is a key of :data:`WINDOW_BITS`, ``limit`` is in bytes and applies
    with ``limits``. Takes long for more than some hundred bytes; zlib releases the interpreter's lock.

    Raises MALFORMED for data that is truncated, followed by other bytes, or not in that coding; TOO_LARGE for
    more bytes than a limit, naming its option in the details if it is one of ``limits``; OVERLOADED without
    memory for them.
    """
    inflater = zlib.decompressobj(WINDOW_BITS[coding])
    most = most_inflated(len(body), limit, limits)
    try:
        plain = inflater.decompress(body, most + 1)
    except MemoryError as fault:
        raise InferenceError(ErrorCode.OVERLOADED, f"no memory for the {coding} body") from fault
    except zlib.error as fault:
        raise malformed(f"the body is not {coding} data: {fault}") from None
    if len(plain) > most:
        raise too_large(coding, most, limit, limits)
    if not inflater.eof:
        raise malformed(f"the {coding} body is cut short")
    if inflater.unused_data:
        raise malformed(
            f"the {coding} body is followed by {len(inflater.unused_data)} bytes of something else"
        )
    return plain


def most_inflated(size: int, limit: int | None, limits: DecodingLimits) -> int:
    """The largest size after decompression that is allowed for ``size`` bytes."""
    most = min(max(_ANY_RATIO_BYTES, limits.max_compression_ratio * size), limits.max_decompressed_bytes)
    return most if limit is None else min(most, limit)


def too_large(coding: str, most: int, limit: int | None, limits: DecodingLimits) -> InferenceError:
    """The TOO_LARGE for a body of more than ``most`` bytes, which names the option."""
    if most == limit:
        option = "max_response_bytes" if limits.owner == "upstream" else "max_request_bytes"
        message = (
            f"the {coding} body has more than the {limit} bytes that {option} of this {limits.owner} allows, "
            "when decompressed"
        )
        return InferenceError(ErrorCode.TOO_LARGE, message)
    if most == limits.max_decompressed_bytes:
        option, what = "max_decompressed_bytes", f"has more than the {most} bytes"
    else:
        option = "max_compression_ratio"
        what = f"grows by more than the factor {limits.max_compression_ratio}"
    return InferenceError(
        ErrorCode.TOO_LARGE,
        f"the {coding} body {what} that {option} of this {limits.owner} allows, when decompressed",
        details={"option": option},
    )


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
            f"{coding[:_SHORT_HEADER]}",
            details={"accept_encoding": ", ".join(WINDOW_BITS)},
        )
    if len(request.body) > SHORT_BYTES:
        offload.require()
    plain = inflate(coding, request.body, request.max_body_bytes, offload.limits())
    request.decompressed_bytes = len(plain)
    return plain


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
    return _remembered_coding(header) if len(header) <= _SHORT_HEADER else _coding_in(header)


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
