"""Requests as messages: pseudo-header fields, fields, lengths and trailers (RFC 9113, 8)."""

from __future__ import annotations

from tests.protocols.transport.h2.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    PADDED,
    block,
    fields,
    frame,
    message,
)
from tests.protocols.transport.rfc.http2 import Case, answered, call, data, opened, request, reset, streams

OK, MALFORMED = answered(1), reset("PROTOCOL_ERROR")
WHOLE = fields()
PSEUDO, REST = WHOLE[:4], WHOLE[4:]
TRAILERS = END_HEADERS | END_STREAM


def with_field(name: str, value: str) -> bytes:
    """A call with one more field."""
    return call(1, (name, value))


def with_length(*lengths: str) -> bytes:
    """A call of 6 bytes that states its length."""
    return request(1, WHOLE + [("content-length", length) for length in lengths])


def with_trailers(*lines: tuple[str, str], flags: int = TRAILERS) -> bytes:
    """A call that ends with trailers."""
    return opened() + data(flags=0) + request(1, list(lines), flags, None)


def _bytes(name: bytes, value: bytes) -> bytes:
    """A call with one more field of any bytes."""
    return request(1, block(WHOLE) + b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value)


PSEUDO_FIELDS = [
    Case("order of pseudo-header fields", "8.3", request(1, PSEUDO[::-1] + REST), OK),
    Case("no :authority", "8.3.1", call(without=":authority"), OK),
    *(Case(f"no {name}", "8.3.1", call(without=name), MALFORMED) for name in (":method", ":scheme", ":path")),
    *(
        Case(f"{name} twice", "8.3.1", request(1, [*PSEUDO, (name, value), *REST]), MALFORMED)
        for name, value in PSEUDO
    ),
    Case("empty :path", "8.3.1", request(1, [(n, "" if n == ":path" else v) for n, v in WHOLE]), MALFORMED),
    Case(":path without a slash", "8.3.1", call(method="test.Echo/Call"), streams(s1="status 12")),
    Case("unknown method of gRPC", "8.3.1", call(method="/test.Echo/None"), streams(s1="status 12")),
    Case("pseudo-header field after a field", "8.3", request(1, PSEUDO[:3] + REST + PSEUDO[3:]), MALFORMED),
    Case("unknown pseudo-header field", "8.3", request(1, [*PSEUDO, (":other", "x"), *REST]), MALFORMED),
    Case(":status in a request", "8.3", request(1, [*PSEUDO, (":status", "200"), *REST]), MALFORMED),
    Case(
        ":protocol without its setting",
        "8.3",
        request(1, [*PSEUDO, (":protocol", "websocket"), *REST]),
        MALFORMED,
    ),
    Case(":METHOD", "8.2.1", request(1, [(":METHOD", "POST"), *PSEUDO[1:], *REST]), MALFORMED),
    Case("method GET", "8.3.1", request(1, [(":method", "GET"), *PSEUDO[1:], *REST]), streams(s1="http 405")),
    Case(
        "method CONNECT",
        "8.5",
        request(1, [(":method", "CONNECT"), PSEUDO[3], *REST]),
        streams(s1="http 405"),
    ),
    Case("NUL in :path", "8.2.1", call(method="/test\0"), MALFORMED),
]

FIELDS = [
    Case("a field", "8.2", with_field("a-b_c.d~", "e"), OK),
    Case("empty value", "8.2", with_field("a", ""), OK),
    Case("blank and tab inside a value", "8.2.1", with_field("a", "b \t c"), OK),
    Case("repeated field", "8.2", call(1, ("a", "b"), ("a", "c")), OK),
    Case("cookie crumbs", "8.2.3", call(1, ("cookie", "a=b"), ("cookie", "c=d")), OK),
    Case("host beside :authority", "8.3.1", with_field("host", "x"), OK),
    *(
        Case(f"name {name!r}", "8.2.1", _bytes(name, b"b"), MALFORMED)
        for name in (
            b"",
            b"A",
            b"aB",
            b"a b",
            b"a:b",
            b"a\0",
            b"a\n",
            b"a\r",
            b"a\x7f",
            b"a\xe9",
            b" a",
            b"a(",
        )
    ),
    *(
        Case(f"value {value!r}", "8.2.1", _bytes(b"a", value), MALFORMED)
        for value in (b"b\0c", b"b\rc", b"b\nc", b"b\r\nc: d", b" b\0", b"b\r ")
    ),
    # malformed by the RFC; gRPC strips them
    *(
        Case(f"blanks of metadata {value!r}", "8.2.1", _bytes(b"a", value), OK)
        for value in (b" b", b"b ", b"\tb", b"b\t", b" ")
    ),
    Case("blanks of binary metadata", "8.2.1", _bytes(b"a-bin", b"YQ "), MALFORMED),
    *(
        Case(f"connection-specific field {name}", "8.2.2", with_field(name, "x"), MALFORMED)
        for name in ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
    ),
    Case("no te", "8.2.2", call(without="te"), OK),
    *(
        Case(f"te '{value}'", "8.2.2", call(1, ("te", value)), MALFORMED)
        for value in ("gzip", "trailers, gzip", "", "trailers;q=1")
    ),
    Case("te twice", "8.2.2", request(1, [*WHOLE, ("te", "gzip")]), MALFORMED),
    Case(
        "content-type of another protocol",
        "8.3.1",
        call(1, ("content-type", "text/plain")),
        streams(s1="http 415"),
    ),
]

LENGTHS = [
    Case("content-length", "8.1.1", with_length("6"), OK),
    Case("content-length with zeros in front", "8.1.1", with_length("006"), OK),
    Case("content-length too short", "8.1.1", with_length("5"), MALFORMED),
    Case("content-length too long", "8.1.1", with_length("7"), MALFORMED),
    Case("content-length of 2^64", "8.1.1", with_length(str(2**64)), MALFORMED),
    Case("two equal content-lengths", "8.1.1", with_length("6", "6"), OK),
    Case("two different content-lengths", "8.1.1", with_length("6", "7"), MALFORMED),
    *(
        Case(f"content-length '{value}'", "8.1.1", with_length(value), MALFORMED)
        for value in ("", "x", "-6", "+6", "6.0", "6 6")
    ),
    Case(
        "content-length in two frames",
        "8.1.1",
        with_length("6")[:-15] + frame(DATA, 0, 1, message(b"x")[:2]) + frame(DATA, 1, 1, message(b"x")[2:]),
        OK,
    ),
    Case(
        "content-length before trailers",
        "8.1.1",
        with_length("6")[:-15] + data(flags=0) + request(1, [("a", "b")], TRAILERS, None),
        OK,
    ),
    Case(
        "content-length too long before trailers",
        "8.1.1",
        request(1, fields("/test.Echo/Wait", ("content-length", "7")), content=None)
        + data(flags=0)
        + request(1, [("a", "b")], TRAILERS, None),
        MALFORMED,
    ),
    Case(
        "content-length does not count padding",
        "8.1.1",
        with_length("6")[:-15] + frame(DATA, PADDED | END_STREAM, 1, b"\5" + message(b"x") + bytes(5)),
        OK,
    ),
    Case(
        "content-length that counts padding",
        "8.1.1",
        with_length("12")[:-15] + frame(DATA, PADDED | END_STREAM, 1, b"\5" + message(b"x") + bytes(5)),
        MALFORMED,
    ),
    Case(
        "content-length without DATA",
        "8.1.1",
        request(1, [*WHOLE, ("content-length", "6")], TRAILERS, None),
        MALFORMED,
    ),
]

TRAILER_FIELDS = [
    Case("trailers", "8.1", with_trailers(("a", "b")), OK),
    Case("empty trailers", "8.1", with_trailers(), OK),
    Case("trailers without END_STREAM", "8.1", with_trailers(("a", "b"), flags=END_HEADERS), MALFORMED),
    *(
        Case(f"{name} in trailers", "8.1", with_trailers((name, value)), MALFORMED)
        for name, value in ((":path", "/"), (":status", "200"), (":other", "x"))
    ),
    Case("upper case in trailers", "8.2.1", with_trailers(("A", "b")), MALFORMED),
    Case("line break in trailers", "8.2.1", with_trailers(("a", "b\nc")), MALFORMED),
    Case("blank first in trailers", "8.2.1", with_trailers(("a", " b")), MALFORMED),
    Case("connection-specific field in trailers", "8.2.2", with_trailers(("connection", "x")), MALFORMED),
    Case(
        "DATA after trailers",
        "5.1",
        opened(1, "/test.Echo/Wait") + data(flags=0) + request(1, [("a", "b")], TRAILERS, None) + data(),
        reset("STREAM_CLOSED"),
    ),
]

CASES = [*PSEUDO_FIELDS, *FIELDS, *LENGTHS, *TRAILER_FIELDS]
