"""Heads of HTTP/1 requests: what is one, what is refused, and in which words."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.http1.headers import (
    MAX_FIELD_BYTES,
    MAX_FIELDS,
    MAX_HEADERS_BYTES,
    HeaderProbe,
    HeadersError,
    RequestHeaders,
    parse_headers,
    request_parser,
)


def head(*lines: str, first: str = "POST /p?q HTTP/1.1") -> RequestHeaders:
    """A head with a Host."""
    return parse_headers("\r\n".join((first, "Host: x", *lines, "", "")).encode("latin-1"))


class TestWhatIsTold:
    def test_a_post(self) -> None:
        told = head("Content-Length: 12", "X-Some:  Value\t")
        assert (told.method, told.path, told.query, told.minor) == ("POST", "/p", "q", 1)
        assert told.headers == {"host": "x", "content-length": "12", "x-some": "Value"}
        assert (told.length, told.keep_alive, told.expects_continue) == (12, True, False)

    def test_a_later_minor_version_is_read_as_1_1(self) -> None:
        assert head(first="GET / HTTP/1.2").minor == 1

    def test_headers_of_one_name_are_joined(self) -> None:
        assert head("Accept: a", "ACCEPT: b").headers["accept"] == "a, b"

    def test_bytes_that_are_no_text_stay(self) -> None:
        assert head("X: \xff").headers["x"] == "\udcff"

    def test_chunks_have_no_length(self) -> None:
        assert head("Transfer-Encoding: Chunked").length == -1

    @pytest.mark.parametrize(
        ("first", "lines", "kept"),
        [
            ("GET / HTTP/1.1", (), True),
            ("GET / HTTP/1.1", ("Connection: close",), False),
            ("GET / HTTP/1.1", ("Connection: Close",), False),
            ("GET / HTTP/1.1", ("Connection: keep-alive , close",), False),
            ("GET / HTTP/1.1", ("Connection: close", "Connection: keep-alive"), False),
            ("GET / HTTP/1.1", ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), True),
            ("GET / HTTP/1.0", (), False),
            ("GET / HTTP/1.0", ("Connection: keep-alive",), True),
            # HTTP/1.0 knows no chunks, so that it is not known where such a request ends for others
            ("POST / HTTP/1.0", ("Connection: keep-alive", "Transfer-Encoding: chunked"), False),
        ],
    )
    def test_whether_the_connection_goes_on(self, first: str, lines: tuple[str, ...], kept: bool) -> None:
        assert head(*lines, first=first).keep_alive is kept

    @pytest.mark.parametrize(
        ("target", "path", "query"),
        [
            ("/", "/", ""),
            ("/a%2Fb/%41?x=%20&y?z", "/a%2Fb/%41", "x=%20&y?z"),
            ("http://elsewhere:80/v2?q", "/v2", "q"),
            ("HTTP://elsewhere", "/", ""),
            ("http://elsewhere?q", "/", "q"),
            ("*", "*", ""),
        ],
    )
    def test_targets(self, target: str, path: str, query: str) -> None:
        told = head(first=f"OPTIONS {target} HTTP/1.1")
        assert (told.path, told.query) == (path, query)

    @pytest.mark.parametrize("lines", [("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 3"), ()])
    def test_an_offer_to_upgrade_is_a_request_as_any(self, lines: tuple[str, ...]) -> None:
        told = head(*lines)
        assert (told.length, told.path) == (3 if lines else 0, "/p")

    def test_100_continue(self) -> None:
        assert head("Expect: 100-Continue").expects_continue
        assert not head("Expect: 100-continue", first="POST / HTTP/1.0").expects_continue

    def test_the_longest_header(self) -> None:
        value = "i" * (MAX_FIELD_BYTES - 4)
        assert head(f"NV-I: {value}").headers["nv-i"] == value


REFUSED = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "bare lines": b"GET / HTTP/1.1\nHost: x\n\r\n\r\n",
    "one bare line": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare end": b"GET / HTTP/1.1\r\nHost: x\r\n\nA: b\r\n\r\n",
    "bare return": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "folded first": b"GET / HTTP/1.1\r\n Host: x\r\nA: b\r\n\r\n",
    "zero byte": b"GET / HTTP/1.1\r\nHost: x\x00y\r\n\r\n",
    "control": b"GET / HTTP/1.1\r\nHost: x\x0by\r\n\r\n",
    "space before colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost\r\n\r\n",
    "no name": b"GET / HTTP/1.1\r\nHost: x\r\n: x\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "0.9": b"GET / HTTP/0.9\r\nHost: x\r\n\r\n",
    "2.0": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "1.10": b"GET / HTTP/1.10\r\nHost: x\r\n\r\n",
    "another protocol": b"GET / RTSP/1.0\r\nHost: x\r\n\r\n",
    "invalid host": b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method of nobody": b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n",
}
SMUGGLED = [
    ("Content-Length: 5", "Content-Length: 5"),
    ("Content-Length: 5", "Content-Length: 6"),
    ("Content-Length: 5, 5",),
    ("Content-Length: +5",),
    ("Content-Length: -5",),
    ("Content-Length: 1_0",),
    ("Content-Length: 0x10",),
    ("Content-Length: 5 5",),
    ("Content-Length:",),
    ("Content-Length: \xb2",),
    ("Content-Length: 99999999999999999999999",),
    ("Content-Length: 5", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: 5"),
    ("Transfer-Encoding: identity",),
    ("Transfer-Encoding: gzip, chunked",),
    ("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked, gzip",),
    ("Transfer-Encoding: xchunked",),
    ("Transfer-Encoding: \x0bchunked",),
    ("Transfer-Encoding: chunked;q=1",),
    ("Transfer-Encoding:",),
    ("Transfer-Encoding : chunked",),
    ("Connection: Upgrade", "Upgrade: h2c", "Transfer-Encoding: gzip"),
    ("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 5", "Transfer-Encoding: chunked"),
]


class TestChunksWithALength:
    """TensorFlow's GraphPipe plug-in sends both (libcurl with a size and a header of its own)."""

    LINES = ("Content-Length: 60", "Expect: 100-continue", "Transfer-Encoding: chunked")

    @pytest.mark.parametrize("lines", [LINES, LINES[::-1]])
    def test_the_chunks_count_and_the_connection_ends(self, lines: tuple[str, ...]) -> None:
        raw = "\r\n".join(("POST / HTTP/1.1", "Host: x", *lines, "", "")).encode()
        told = parse_headers(raw, accept_te_with_length=True)
        assert (told.length, told.keep_alive, told.expects_continue) == (-1, False, True)
        HeaderProbe(request_parser(None, True)).check(raw[:-2])
        with pytest.raises(HeadersError):
            parse_headers(raw)

    @pytest.mark.parametrize(
        "lines",
        [
            ("Content-Length: 5", "Content-Length: 6", "Transfer-Encoding: chunked"),
            ("Content-Length: 5, 6", "Transfer-Encoding: chunked"),
            ("Content-Length: x", "Transfer-Encoding: chunked"),
            ("Content-Length: 5", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
            ("Content-Length: 5", "Transfer-Encoding: chunked, gzip"),
            ("Content-Length: 5", "Transfer-Encoding: xchunked"),
            ("Content-Length: 5", "Transfer-Encoding : chunked"),
            ("Content-Length: 5", "Content-Length: 5"),
        ],
        ids=repr,
    )
    def test_nothing_else_is_taken(self, lines: tuple[str, ...]) -> None:
        raw = "\r\n".join(("POST / HTTP/1.1", "Host: x", *lines, "", "")).encode()
        with pytest.raises(HeadersError):
            parse_headers(raw, accept_te_with_length=True)

    def test_http_1_0_has_no_chunks(self) -> None:
        raw = "\r\n".join(("POST / HTTP/1.0", *self.LINES, "", "")).encode()
        with pytest.raises(HeadersError, match=r"HTTP/1\.0"):
            parse_headers(raw, accept_te_with_length=True)

    def test_others_keep_their_connection(self) -> None:
        for lines in (("Content-Length: 5",), ("Transfer-Encoding: chunked",)):
            raw = "\r\n".join(("POST / HTTP/1.1", "Host: x", *lines, "", "")).encode()
            assert parse_headers(raw, accept_te_with_length=True) == parse_headers(raw)


class TestWhatIsRefused:
    @pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
    def test_what_is_no_head(self, raw: bytes) -> None:
        with pytest.raises(HeadersError):
            parse_headers(raw)

    @pytest.mark.parametrize("lines", SMUGGLED, ids=repr)
    def test_what_two_servers_may_cut_differently(self, lines: tuple[str, ...]) -> None:
        with pytest.raises(HeadersError):
            head(*lines)

    def test_a_header_that_is_too_long_is_named(self) -> None:
        with pytest.raises(HeadersError, match="the header 'X-Long' has more than 65536 bytes"):
            head(f"X-Long: {'i' * MAX_FIELD_BYTES}")

    def test_a_target_that_is_too_long(self) -> None:
        with pytest.raises(HeadersError, match="target has more than 65536 bytes"):
            head(first=f"GET /{'i' * MAX_FIELD_BYTES} HTTP/1.1")

    def test_too_many_headers(self) -> None:
        assert len(head(*["A: b"] * (MAX_FIELDS - 1)).headers) == 2
        with pytest.raises(HeadersError, match=f"more than {MAX_FIELDS} headers"):
            head(*["A: b"] * MAX_FIELDS)

    @given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
    def test_only_one_error_comes_out(self, noise: bytes) -> None:
        with suppress(HeadersError):
            parse_headers(b"GET / HTTP/1.1\r\nHost: x\r\n" + noise + b"\r\n\r\n")


class TestWhatHasNotArrived:
    @pytest.mark.parametrize("raw", [b"\x16\x03\x01", b"GET / HTTP/1.1\nHost: x\n", b"SSH-2.0-x\r\n", b"{"])
    def test_what_can_be_no_head_is_refused_at_once(self, raw: bytes) -> None:
        with pytest.raises(HeadersError):
            HeaderProbe(request_parser(None)).check(raw)

    def test_it_goes_on_where_it_was(self) -> None:
        raw = b"\r\nPOST /p HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100 + b"\r\n"
        scout = HeaderProbe(request_parser(None))
        for end in range(1, len(raw)):
            scout.check(raw[:end])
        with pytest.raises(HeadersError):
            scout.check(raw + b" folded")

    def test_it_does_not_grow_for_ever(self) -> None:
        scout = HeaderProbe(request_parser(None))
        raw = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * (MAX_HEADERS_BYTES // 6 - 6)
        scout.check(raw)
        with pytest.raises(HeadersError, match=f"more than {MAX_HEADERS_BYTES} bytes"):
            scout.check(raw + b"A: b\r\n" * 3)
