"""Connections: persistence, pipelining, upgrades, 100 Continue and early answers (RFC 9112, 9; RFC 9110, 7.8 and 10.1.1)."""

from __future__ import annotations

from tests.protocols.transport.rfc.http1 import Case, Outcome, get, head, post, refused, served, served_last

GET, GET_LAST = served("GET /"), served_last("GET /")
LENGTH = "Content-Length: 3"
EXPECT = "Expect: 100-continue"
CHUNKED = "Transfer-Encoding: chunked"
CONTINUED = Outcome((100, 200), ("POST / abc",), persists=True)
EARLY = Outcome((404,), persists=True)


def _connection(value: str, version: str = "1.1") -> bytes:
    return get(f"Connection: {value}", line=f"GET / HTTP/{version}")


PERSISTENCE = [
    Case("close", "9.6", _connection("close"), GET_LAST),
    Case("Close", "9110: 7.6.1", _connection("Close"), GET_LAST),
    Case("close among other options", "9110: 7.6.1", _connection("a, close ,b"), GET_LAST),
    Case("close in a second line", "9110: 7.6.1", get("Connection: a", "Connection: close"), GET_LAST),
    Case("close and keep-alive", "9.3", _connection("keep-alive, close"), GET_LAST),
    Case("an option that contains close", "9110: 7.6.1", _connection("closed"), GET),
    Case("keep-alive", "9.3", _connection("keep-alive"), GET),
    Case("empty Connection", "9110: 7.6.1", _connection(""), GET),
    Case("keep-alive in HTTP/1.0", "9.3", _connection("keep-alive", "1.0"), GET),
    Case("Keep-Alive in HTTP/1.0", "9.3", _connection("Keep-Alive", "1.0"), GET),
    Case("another option in HTTP/1.0", "9.3", _connection("a", "1.0"), GET_LAST),
    Case("close and keep-alive in HTTP/1.0", "9.3", _connection("close, keep-alive", "1.0"), GET_LAST),
    Case("close with a body", "9.6", post(b"abc", LENGTH, "Connection: close"), served_last("POST / abc")),
]

UPGRADES = [
    Case(
        "upgrade to h2c",
        "9110: 7.8",
        get("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: "),
        GET,
    ),
    Case("upgrade to websocket", "9110: 7.8", get("Connection: Upgrade", "Upgrade: websocket"), GET),
    Case(
        "upgrade with a body",
        "9110: 7.8",
        post(b"abc", LENGTH, "Connection: Upgrade", "Upgrade: h2c"),
        served("POST / abc"),
    ),
    Case("upgrade of HTTP/1.0", "9110: 7.8", get("Upgrade: h2c", line="GET / HTTP/1.0"), GET_LAST),
]

PIPELINES = [
    Case("two requests", "9.3.2", get() * 2, served("GET /", "GET /")),
    Case("bodies", "9.3.2", post(b"abc", LENGTH) + post(b"def", LENGTH), served("POST / abc", "POST / def")),
    Case(
        "all framings",
        "9.3.2",
        post(b"abc", LENGTH) + post(b"3\r\ndef\r\n0\r\nA: b\r\n\r\n", CHUNKED) + get(line="GET /c HTTP/1.1"),
        served("POST / abc", "POST / def", "GET /c"),
    ),
    Case(
        "empty line between requests",
        "2.2",
        post(b"abc", LENGTH) + b"\r\n" + get(),
        served("POST / abc", "GET /"),
    ),
    Case("an error after a request", "9.3.2", get() + get(line="GET / HTTP/2.0"), refused(505, "GET /")),
    Case("an error after a body", "9.3.2", post(b"abc", LENGTH) + b"abc" + get(), refused(501, "POST / abc")),
    Case("close in the first of two", "9.6", _connection("close") + get(), GET_LAST),
    Case("100 requests", "9.3.2", get() * 100, served(*["GET /"] * 100)),
    Case(
        "HEAD before another", "9.3.2", head("HEAD / HTTP/1.1") * 2, served("HEAD /", "HEAD /"), bodiless=True
    ),
    Case(
        "HEAD with a body",
        "9110: 9.3.2",
        post(b"abc", LENGTH, line="HEAD / HTTP/1.1"),
        served("HEAD /"),
        bodiless=True,
    ),
]

CONTINUE = [
    Case("100-continue, body later", "9110: 10.1.1", post(b"", LENGTH, EXPECT), CONTINUED, later=b"abc"),
    Case(
        "chunked 100-continue",
        "9110: 10.1.1",
        post(b"", CHUNKED, EXPECT),
        CONTINUED,
        later=b"3\r\nabc\r\n0\r\n\r\n",
    ),
    Case(
        "100-continue in another case",
        "9110: 10.1.1",
        post(b"", LENGTH, "Expect: 100-Continue"),
        CONTINUED,
        later=b"abc",
    ),
    Case("100-continue, body at once", "9110: 10.1.1", post(b"abc", LENGTH, EXPECT), served("POST / abc")),
    Case(
        "100-continue without a body",
        "9110: 10.1.1",
        post(b"", "Content-Length: 0", EXPECT),
        served("POST /"),
    ),
    Case(
        "100-continue of HTTP/1.0",
        "9110: 10.1.1",
        post(b"abc", LENGTH, EXPECT, line="POST / HTTP/1.0"),
        served_last("POST / abc"),
    ),
    Case("another expectation", "9110: 10.1.1", post(b"abc", LENGTH, "Expect: tea"), served("POST / abc")),
    Case(
        "100-continue, refused",
        "9110: 10.1.1",
        post(b"", "Content-Length: 900", EXPECT, line="POST /early HTTP/1.1"),
        refused(404),
    ),
    Case(
        "100-continue above the limit",
        "9110: 10.1.1",
        post(b"", "Content-Length: 1001", EXPECT),
        refused(413),
    ),
]

EARLY_ANSWERS = [
    Case("early answer without a body", "9.3", get(line="GET /early HTTP/1.1"), EARLY),
    Case("early answer after the body", "9.3", post(b"abc", LENGTH, line="POST /early HTTP/1.1"), EARLY),
    Case(
        "early answer before the body",
        "9.6",
        post(b"", "Content-Length: 900", line="POST /early HTTP/1.1"),
        refused(404),
    ),
    Case("early answer before chunks", "9.6", post(b"", CHUNKED, line="POST /early HTTP/1.1"), refused(404)),
    Case(
        "early answer, then a request",
        "9.3.2",
        get(line="GET /early HTTP/1.1") * 2,
        Outcome((404, 404), persists=True),
    ),
    Case(
        "an early answer leaves no request",
        "11.2",
        post(get(line="GET /smuggled HTTP/1.1"), "Content-Length: 900", line="POST /early HTTP/1.1"),
        refused(404),
    ),
]

CASES = [*PERSISTENCE, *UPGRADES, *PIPELINES, *CONTINUE, *EARLY_ANSWERS]
