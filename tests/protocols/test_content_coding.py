"""Compressed bodies, in within a limit, and out as the client wants them."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.content_coding import WINDOW_BITS, accepted_coding, deflate, inflate
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.offload import DecodingLimits

COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress}
codings = pytest.mark.parametrize("coding", sorted(COMPRESS))


@codings
@given(body=st.binary())
def test_round_trip(coding: str, body: bytes) -> None:
    squeezed = COMPRESS[coding](body)
    assert inflate(coding, squeezed, None) == inflate(coding, memoryview(squeezed), len(body)) == body


@codings
def test_a_bomb_stops_at_the_limit(coding: str) -> None:
    bomb = COMPRESS[coding](bytes(50_000_000))
    with pytest.raises(
        InferenceError, match="the 1000 bytes that max_request_bytes of this listener"
    ) as caught:
        inflate(coding, bomb, 1000)
    assert caught.value.code is ErrorCode.TOO_LARGE


@codings
@pytest.mark.parametrize(
    ("size", "limits", "option"),
    [
        ((1 << 20) + 1, DecodingLimits(max_compression_ratio=100), "max_compression_ratio"),
        (3 << 20, DecodingLimits(1 << 21, 2000), "max_decompressed_bytes"),
        (1 << 20, DecodingLimits(max_compression_ratio=1), ""),
        (1 << 21, DecodingLimits(1 << 21, 2000), ""),
    ],
)
def test_limits_on_size_and_ratio(coding: str, size: int, limits: DecodingLimits, option: str) -> None:
    bomb = COMPRESS[coding](bytes(size))
    if not option:
        assert inflate(coding, bomb, None, limits) == bytes(size)
        return
    with pytest.raises(InferenceError, match=f"that {option} of this listener allows") as caught:
        inflate(coding, bomb, None, limits)
    assert (caught.value.code, caught.value.details["option"]) == (ErrorCode.TOO_LARGE, option)


@codings
def test_a_ratio_bounds_memory(coding: str) -> None:
    bomb = COMPRESS[coding](bytes(100_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(InferenceError, match="max_compression_ratio"):
            inflate(coding, bomb, None)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@codings
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda body: body[:-3], "cut short"),
        (lambda body: b"", "cut short"),
        (lambda body: body + b"more", "followed by 4 bytes"),
        (lambda body: b"\0" + body, "is not .* data"),
        (lambda body: zlib.compress(b"x", wbits=-15), "is not .* data"),
    ],
    ids=["truncated", "empty", "trailing", "garbage", "raw deflate"],
)
@pytest.mark.parametrize("limit", [None, 100])
def test_bad_data(coding: str, spoil: object, message: str, limit: int | None) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        inflate(coding, spoil(COMPRESS[coding](b"fine")), limit)  # type: ignore[operator]
    assert caught.value.code is ErrorCode.MALFORMED


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", ""),
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip ; q=0.5,identity;q=0.6", ""),
        ("identity;q=0, gzip;q=0.1", "gzip"),
        ("identity, gzip", ""),
        ("*", ""),
        ("br, zstd", ""),
        ("br, gzip;q=0.1", "gzip"),
        ("gzip;q=0", ""),
        ("gzip;q=x", ""),
        ("gzip;q=nan", ""),
        (",;,=;q", ""),
    ],
)
def test_the_coding_that_a_client_wants_most(header: str, coding: str) -> None:
    assert accepted_coding(header) == coding


@pytest.mark.parametrize("coding", WINDOW_BITS)
def test_what_was_deflated_inflates(coding: str) -> None:
    parts = [b"a" * 1000, memoryview(b"b" * 70_000), b"", bytearray(b"c")]
    assert inflate(coding, b"".join(deflate(coding, parts)), None) == b"".join(parts)


def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    # one block of zeros, over and over: a GiB in a MiB
    deflater = zlib.compressobj(9, wbits=31)
    head = deflater.compress(bytes(1 << 20)) + deflater.flush(zlib.Z_FULL_FLUSH)
    block = deflater.compress(bytes(1 << 20)) + deflater.flush(zlib.Z_FULL_FLUSH)
    bomb = head + block * 1023
    tracemalloc.start()
    try:
        with pytest.raises(InferenceError) as caught:
            inflate("gzip", bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.TOO_LARGE
