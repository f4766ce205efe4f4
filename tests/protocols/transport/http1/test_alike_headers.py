"""A header section that differs from the one before in values is read as any other is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.http1.headers import (
    HeadersError,
    RequestHeaders,
    parse_alike,
    parse_headers,
)
from interlingua.protocols.transport.http1.reader import RequestReader

HEAD = (
    b"POST /v2/models/m/infer?x=1 HTTP/1.1\r\nHost: here\r\nX-Request-Id: 12\r\ntraceparent: 00-1-2-00\r\n"
    b"accept: a\r\nAccept: b\r\nConnection: keep-alive\r\nContent-Length: 5\r\nempty:\r\n\r\n"
)


def _read(raw: bytes, **options: bool) -> RequestHeaders | None:
    try:
        return replace(parse_headers(raw, **options), form=None)
    except HeadersError:
        return None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"12", b"another"),
        (b"00-1-2-00", b""),
        (b" 12\r", b"\t12 \t \r"),
        (b": 5\r", b": 123456\r"),
        (b": 5\r", b": 0\r"),
        (b"empty:", b"empty: no longer"),
        (b"12", b"a: b, c; d"),
    ],
)
def test_other_values(old: bytes, new: bytes) -> None:
    raw, before = HEAD.replace(old, new, 1), parse_headers(HEAD)
    found = parse_alike(raw, before)
    if b"\t" in new:
        assert found is None
        return
    assert found is not None
    assert replace(found, form=None) == _read(raw)
    assert found.headers.as_sent == {"host": "Host", **parse_headers(raw).headers.as_sent}  # type: ignore[attr-defined]
    again = parse_alike(HEAD, found)
    assert again is not None
    assert replace(again, form=None) == _read(HEAD)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"POST", b"PUT"),
        (b"/m/", b"/n/"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b": here", b": there"),
        (b"accept: a", b"accept: c"),
        (b"Accept: b", b"Accept: c"),
        (b"keep-alive", b"close"),
        (b"X-Request-Id", b"x-request-id"),
        (b"X-Request-Id: 12\r\n", b""),
        (b"X-Request-Id: 12", b"X-Request-Id: 12\r\nmore: 1"),
        (b"traceparent", b"content-length"),
        (b"traceparent: 00-1-2-00", b"transfer-encoding: chunked"),
        (b": 5\r", b": +5\r"),
        (b": 5\r", b": 5, 5\r"),
        (b": 5\r", b": \r"),
        (b": 5\r", b": 0x5\r"),
        (b": 12", b": \x00"),
        (b": 12", b": \x7f"),
        (b": 12", b": \xc3\xa9"),
        (b": 12", b": 1\n2"),
        (b": 12", b" : 12"),
    ],
)
def test_anything_else_is_parsed(old: bytes, new: bytes) -> None:
    assert old in HEAD
    assert parse_alike(HEAD.replace(old, new, 1), parse_headers(HEAD)) is None


def test_a_length_beside_a_coding_counts_for_nothing() -> None:
    raw = HEAD.replace(b"empty:", b"Transfer-Encoding: chunked")
    before = parse_headers(raw, accept_te_with_length=True)
    assert before.length == -1
    assert parse_alike(raw.replace(b"Content-Length: 5", b"Content-Length: 9"), before) is None


_piece = st.sampled_from([b"\r\n", b":", b" ", b"\t", b",", b"\x00", b"\xff", b"5", b"content-length", b"a"])


@given(
    st.lists(
        st.tuples(st.integers(0, len(HEAD) - 4), st.integers(0, 3), _piece | st.binary(max_size=3)),
        max_size=3,
    )
)
def test_as_any_section_is_parsed(changes: list[tuple[int, int, bytes]]) -> None:
    raw = HEAD[:-4]
    for place, count, piece in changes:
        raw = raw[:place] + piece + raw[place + count :]
    raw += b"\r\n\r\n"
    if raw.find(b"\r\n\r\n") != len(raw) - 4:
        return
    found = parse_alike(raw, parse_headers(HEAD))
    if found is not None:
        assert replace(found, form=None) == _read(raw)


def test_a_reader_does_not_parse_values_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RequestReader()
    first = reader.read_headers(HEAD + b"12345")
    reader.answered()
    monkeypatch.setattr("interlingua.protocols.transport.http1.reader.parse_headers", None)
    raw = HEAD.replace(b"00-1-2-00", b"00-3-4-00").replace(b": 5\r", b": 2\r")
    found = reader.read_headers(raw + b"12")
    assert first is not None
    assert found is not None
    assert (found.headers["traceparent"], reader.body) == ("00-3-4-00", b"12")
    assert first.headers["traceparent"] == "00-1-2-00"
