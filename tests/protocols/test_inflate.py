"""Compressed bodies within a limit."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.inflate import inflate
from schemas import ErrorCode, InferenceError

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
    with pytest.raises(InferenceError, match="more than 1000 bytes") as caught:
        inflate(coding, bomb, 1000)
    assert caught.value.code is ErrorCode.TOO_LARGE


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
