"""Request lines and header sections (RFC 9112, 2, 3 and 5)."""

from __future__ import annotations

from tests.protocols.transport.rfc.http1 import Case, get, head, refused, served, served_last

GET = served("GET /")
BAD = refused(400)

_METHODS = [
    Case(
        f"method {method}",
        "9110: 9.3",
        head(f"{method} / HTTP/1.1", "Content-Length: 0"),
        served(f"{method} /"),
    )
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "REPORT")
]

REQUEST_LINE = [
    Case("method GET", "3.1", get(), GET),
    *_METHODS,
    Case("method HEAD", "9110: 9.3.2", head("HEAD / HTTP/1.1"), served("HEAD /"), bodiless=True),
    Case("method CONNECT", "3.2.3", get(line="CONNECT x:80 HTTP/1.1"), served("CONNECT x:80")),
    Case("method in lower case", "3.1", get(line="get / HTTP/1.1"), refused(501)),
    Case("unknown method", "9110: 9.1", get(line="BREW / HTTP/1.1"), refused(501)),
    Case("method with a delimiter", "3.1", get(line="GE(T / HTTP/1.1"), BAD),
    Case("method missing", "3", get(line=" / HTTP/1.1"), BAD),
    Case("TLS", "3", b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3\r\n\r\n", BAD),
    Case("two spaces before the target", "3", get(line="GET  / HTTP/1.1"), BAD),
    Case("two spaces before the version", "3", get(line="GET /  HTTP/1.1"), BAD),
    Case("tabs as separators", "3", get(line="GET\t/\tHTTP/1.1"), BAD),
    Case("space at the beginning", "3", get(line=" GET / HTTP/1.1"), BAD),
    Case("space at the end", "3", get(line="GET / HTTP/1.1 "), BAD),
    Case("a fourth word", "3", get(line="GET / HTTP/1.1 more"), BAD),
    Case("target missing", "3.2", get(line="GET HTTP/1.1"), BAD),
    Case("simple request of HTTP/0.9", "3", b"GET /\r\n\r\n", BAD),
    Case("empty line first", "2.2", b"\r\n" + get(), GET),
    Case("three empty lines first", "2.2", b"\r\n\r\n\r\n" + get(), GET),
    Case("space between request line and headers", "2.2", get(line="GET / HTTP/1.1\r\n A: b"), BAD),
]

VERSIONS = [
    Case("HTTP/1.0", "9110: 2.5", get(line="GET / HTTP/1.0"), served_last("GET /")),
    Case("HTTP/1.2 is read as HTTP/1.1", "9110: 2.5", get(line="GET / HTTP/1.2"), GET),
    Case("HTTP/1.9 is read as HTTP/1.1", "9110: 2.5", get(line="GET / HTTP/1.9"), GET),
    *(
        Case(f"HTTP/{major}", "9110: 15.6.6", get(line=f"GET / HTTP/{major}"), refused(505))
        for major in ("0.9", "2.0", "3.0", "7.7")
    ),
    Case("preface of HTTP/2", "9110: 15.6.6", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", refused(505)),
    *(
        Case(f"version '{version}'", "2.3", get(line=f"GET / {version}"), BAD)
        for version in (
            "HTTP/1",
            "HTTP/1.",
            "HTTP/.1",
            "HTTP/1.10",
            "HTTP/11.1",
            "HTTP/1,1",
            "HTTP/1.x",
            "HTTP/-1.1",
        )
    ),
    *(
        Case(f"protocol '{protocol}'", "2.3", get(line=f"GET / {protocol}"), BAD)
        for protocol in ("http/1.1", "HTTPS/1.1", "HTP/1.1", "RTSP/1.0", "ICE/1.0", "XHTTP/1.1", "1.1")
    ),
]

TARGETS = [
    Case("query", "3.2.1", get(line="GET /a/b?c=d?e HTTP/1.1"), served("GET /a/b?c=d?e")),
    Case("percent-encoding is kept", "3.2.1", get(line="GET /%41%2Fb HTTP/1.1"), served("GET /%41%2Fb")),
    Case("dot segments are kept", "3.2.1", get(line="GET /a/../b HTTP/1.1"), served("GET /a/../b")),
    Case("double slash", "3.2.1", get(line="GET //a HTTP/1.1"), served("GET //a")),
    Case("absolute form", "3.2.2", get(line="GET http://x/a?b HTTP/1.1"), served("GET /a?b")),
    Case(
        "absolute form replaces Host",
        "3.2.2",
        get(line="GET http://y:1/a HTTP/1.1"),
        served("GET /a host=y:1"),
    ),
    Case("absolute form without a path", "3.2.2", get(line="GET http://x HTTP/1.1"), GET),
    Case("absolute form, query alone", "3.2.2", get(line="GET http://x?b HTTP/1.1"), served("GET /?b")),
    Case("absolute form in upper case", "3.2.2", get(line="GET HTTP://x/a HTTP/1.1"), served("GET /a")),
    Case("absolute form without Host", "3.2.2", get(line="GET http://x/ HTTP/1.1", host=""), BAD),
    Case("absolute form with an empty host", "9110: 4.2.1", get(line="GET http:///a HTTP/1.1"), BAD),
    Case("absolute form with a port alone", "9110: 4.2.1", get(line="GET http://:80/a HTTP/1.1"), BAD),
    Case("absolute form with a user", "9110: 4.2.4", get(line="GET http://user@x/ HTTP/1.1"), BAD),
    Case("absolute form with an invalid port", "9110: 4.2.1", get(line="GET http://x:y/ HTTP/1.1"), BAD),
    Case("asterisk form", "3.2.4", get(line="OPTIONS * HTTP/1.1"), served("OPTIONS *")),
    Case("asterisk form of another method", "3.2.4", get(line="GET * HTTP/1.1"), BAD),
    Case("authority form of another method", "3.2.3", get(line="GET x:80 HTTP/1.1"), BAD),
    Case("relative target", "3.2", get(line="GET a HTTP/1.1"), BAD),
    Case("fragment", "3.2", get(line="GET /a#b HTTP/1.1"), BAD),
    Case("space in the target", "3.2", get(line="GET /a b HTTP/1.1"), BAD),
    Case("NUL in the target", "3.2", get(line="GET /a\0b HTTP/1.1"), BAD),
    Case("DEL in the target", "3.2", get(line="GET /a\x7fb HTTP/1.1"), BAD),
    Case("bare CR in the target", "2.2", get(line="GET /a\rb HTTP/1.1"), BAD),
    Case("bytes above ASCII in the target", "3.2", get(line="GET /\xe9 HTTP/1.1"), BAD),
    Case(
        "target of 60000 bytes",
        "3",
        get(line=f"GET /{'a' * 60_000}? HTTP/1.1"),
        served(f"GET /{'a' * 60_000}"),
    ),
    Case("target of 70000 bytes", "3", get(line=f"GET /{'a' * 70_000} HTTP/1.1"), refused(414)),
    Case("target of 300000 bytes", "3", get(line=f"GET /{'a' * 300_000} HTTP/1.1"), refused(414)),
]

LINES = [
    Case("bare LF everywhere", "2.2", get().replace(b"\r\n", b"\n"), BAD),
    Case("bare LF after the request line", "2.2", get().replace(b"\r\n", b"\n", 1), BAD),
    Case("bare LF after a header", "2.2", get("A: b\nC: d"), BAD),
    Case("bare LF at the end", "2.2", get()[:-2] + b"\n", BAD),
    Case("bare CR after the request line", "2.2", get().replace(b"\r\n", b"\r", 1), BAD),
    Case("bare CR in a value", "2.2", get("A: b\rC: d"), BAD),
    Case("bare CR at the end of a value", "2.2", get("A: b\r"), BAD),
    Case("CR CR LF at the end", "2.2", get()[:-2] + b"\r\r\n", BAD),
    Case("bare LF first", "2.2", b"\n" + get(), BAD),
    Case("NUL first", "2.2", b"\0" + get(), BAD),
]

FIELDS = [
    Case("value", "5", get("X-Case: b"), served("GET / x-case=b")),
    Case("name in another case", "9110: 5.1", get("x-CASE: b"), served("GET / x-case=b")),
    Case("value without a space", "5", get("X-Case:b"), served("GET / x-case=b")),
    Case("blanks around a value", "5.1", get("X-Case: \t b \t"), served("GET / x-case=b")),
    Case("tab inside a value", "9110: 5.5", get("A: b\tc"), GET),
    Case("empty value", "9110: 5.5", get("A:"), GET),
    Case("colon in a value", "5", get("X-Case: b:c"), served("GET / x-case=b:c")),
    Case("obs-text in a value", "9110: 5.5", get("A: \xff"), GET),
    Case("repeated field", "9110: 5.3", get("X-Case: b", "X-Case: c"), served("GET / x-case=b, c")),
    Case("every character of a token", "9110: 5.6.2", get("!#$%&'*+-.^_`|~09AZaz: b"), GET),
    Case("space before the colon", "5.1", get("A : b"), BAD),
    Case("tab before the colon", "5.1", get("A\t: b"), BAD),
    Case("space in a name", "5.1", get("A b: c"), BAD),
    Case("no colon", "5", get("A"), BAD),
    Case("no name", "5", get(": b"), BAD),
    *(
        Case(f"name with {character!r}", "9110: 5.1", get(f"A{character}B: c"), BAD)
        for character in ('"', "(", ",", "/", ";", "<", "=", "?", "@", "[", "\\", "{", "\x7f", "\0", "\xe9")
    ),
    *(
        Case(f"value with {character!r}", "9110: 5.5", get(f"A: b{character}c"), BAD)
        for character in ("\0", "\x01", "\x0b", "\x1f", "\x7f")
    ),
    Case("folded by a space", "5.2", get("A: b\r\n c"), BAD),
    Case("folded by a tab", "5.2", get("A: b\r\n\tc"), BAD),
    Case("folded to an empty line", "5.2", get("A: b\r\n "), BAD),
    Case("200 fields", "9110: 5.4", get(*["A: b"] * 200), GET),
    Case("300 fields", "9110: 5.4", get(*["A: b"] * 300), BAD),
    Case("field of 60000 bytes", "9110: 5.4", get(f"A: {'b' * 60_000}"), GET),
    Case("field of 70000 bytes", "9110: 5.4", get(f"A: {'b' * 70_000}"), BAD),
    Case("header section of 300000 bytes", "9110: 5.4", get(*[f"A: {'b' * 3000}"] * 100), BAD),
]

HOST = [
    Case("Host absent", "3.2", get(host=""), BAD),
    Case("Host absent in HTTP/1.0", "3.2", get(line="GET / HTTP/1.0", host=""), served_last("GET /")),
    Case("two equal Hosts", "3.2", get("Host: x"), BAD),
    Case("two different Hosts", "3.2", get("Host: y"), BAD),
    Case("Host invalid in HTTP/1.0", "3.2", get(line="GET / HTTP/1.0", host="Host: x/y"), BAD),
    *(
        Case(
            f"Host '{host}'",
            "9110: 7.2",
            get(host=f"Host: {host}"),
            served(f"GET / host={host}" if host else "GET /"),
        )
        for host in ("", "x:", "x:80", "127.0.0.1:8000", "[::1]", "[::1]:80", "a_b.c-d.", "%41", "a,b;c=d!")
    ),
    *(
        Case(f"Host '{host}'", "3.2", get(host=f"Host: {host}"), BAD)
        for host in (
            *("x y", "x/y", "x?y", "x#y", "user@x", "x:y", "x:80:80", "::1", "[::1", "::1]", "[::1]x", "[x]"),
            *("http://x", "%zz", "<x>", "x\\y", '"x"', "x, y", "x\ty", "\xe9"),
        )
    ),
]

CASES = [*REQUEST_LINE, *VERSIONS, *TARGETS, *LINES, *FIELDS, *HOST]
