"""Message bodies: lengths, transfer codings, chunks and trailers (RFC 9112, 6 and 7), and the ways to smuggle a
request in them (11.2)."""

from __future__ import annotations

from tests.protocols.transport.rfc.http1 import Case, Outcome, get, head, post, refused, served, served_last

ABC = served("POST / abc")
BAD = refused(400)
LENGTH = "Content-Length: 3"
CHUNKED = "Transfer-Encoding: chunked"
LAST = b"0\r\n\r\n"
SMUGGLED = LAST + get(line="GET /smuggled HTTP/1.1")
"""A server that honours the chunked coding finds another request here, one that honours the length a body."""


def chunks(wire: bytes, *fields: str) -> bytes:
    """A request with a chunked body, framed as ``wire``."""
    return post(wire, CHUNKED, *fields)


def _length(value: str) -> str:
    return f"Content-Length: {value}"


def _coding(value: str) -> str:
    return f"Transfer-Encoding: {value}"


LENGTHS = [
    Case("no length and no body", "6.3", head("POST / HTTP/1.1"), served("POST /")),
    Case("length of 0", "6.3", post(b"", "Content-Length: 0"), served("POST /")),
    Case("length of 3", "6.3", post(b"abc", LENGTH), ABC),
    Case("length with zeros in front", "9110: 8.6", post(b"abc", _length("003")), ABC),
    Case("length with blanks around", "5.1", post(b"abc", _length("\t 3 \t")), ABC),
    Case("length of a GET", "9110: 9.3.1", post(b"abc", LENGTH, line="GET / HTTP/1.1"), served("GET / abc")),
    Case(
        "length of a DELETE",
        "9110: 9.3.5",
        post(b"abc", LENGTH, line="DELETE / HTTP/1.1"),
        served("DELETE / abc"),
    ),
    Case(
        "length in HTTP/1.0", "6.3", post(b"abc", LENGTH, line="POST / HTTP/1.0"), served_last("POST / abc")
    ),
    Case("no length in HTTP/1.0", "6.3", head("POST / HTTP/1.0"), served_last("POST /")),
    Case(
        "length at the limit",
        "9110: 15.5.14",
        post(b"a" * 1000, _length("1000")),
        served(f"POST / {'a' * 1000}"),
    ),
    Case(
        "length above the limit",
        "9110: 15.5.14",
        post(b"a" * 1001, _length("1001")),
        Outcome((413,), persists=True),
    ),
    Case(
        "length above the limit, without the body", "9110: 15.5.14", post(b"", _length("1001")), refused(413)
    ),
    Case("length of 2^62", "6.2", post(b"", _length(str(2**62))), refused(413)),
    *(
        Case(f"length '{value}'", "6.3", post(b"abc", _length(value)), BAD)
        for value in (
            *(
                "",
                "+3",
                "-3",
                "-0",
                "3.0",
                "3e0",
                "0x3",
                "3 3",
                "3;",
                "3,",
                ",3",
                "3, 3",
                "3, 4",
                "3_0",
                "'3'",
            ),
            *("\xb3", "\xa03", "3\x00", "3\x0b", str(2**64), "9" * 40),
        )
    ),
    Case("two equal lengths", "6.3", post(b"abc", LENGTH, LENGTH), BAD),
    Case("two different lengths", "6.3", post(b"abc", LENGTH, _length("4")), BAD),
]

CODINGS = [
    Case("chunked", "7.1", chunks(b"3\r\nabc\r\n" + LAST), ABC),
    Case("chunked in upper case", "7", post(b"3\r\nabc\r\n" + LAST, _coding("CHUNKED")), ABC),
    Case("chunked with blanks around", "5.1", post(b"3\r\nabc\r\n" + LAST, _coding(" \t chunked ")), ABC),
    Case(
        "chunked GET", "6", post(b"3\r\nabc\r\n" + LAST, CHUNKED, line="GET / HTTP/1.1"), served("GET / abc")
    ),
    Case("chunked in HTTP/1.0", "6.1", post(LAST, CHUNKED, line="POST / HTTP/1.0"), served_last("POST /")),
    Case(
        "chunked in HTTP/1.0 with keep-alive",
        "6.1",
        post(b"3\r\nabc\r\n" + LAST, CHUNKED, "Connection: keep-alive", line="POST / HTTP/1.0"),
        served_last("POST / abc"),
    ),
    Case("unknown coding before chunked", "6.1", post(LAST, _coding("gzip, chunked")), refused(501)),
    Case("unknown coding in another line", "6.1", post(LAST, _coding("gzip"), CHUNKED), refused(501)),
    *(
        Case(f"transfer coding '{value}'", "6.3", post(LAST, _coding(value)), BAD)
        for value in (
            *(
                "",
                "identity",
                "gzip",
                "cow",
                "chunked, gzip",
                "chunked, identity",
                "chunked, chunked",
                "chunked,",
            ),
            *(
                ",chunked",
                "xchunked",
                "chunkedx",
                "chunked;q=1",
                '"chunked"',
                "chunk ed",
                "\x0bchunked",
                "\x00chunked",
            ),
        )
    ),
    Case("chunked twice in two lines", "6.1", post(LAST, CHUNKED, CHUNKED), BAD),
]

CHUNKS = [
    Case("no chunk", "7.1", chunks(LAST), served("POST /")),
    Case("two chunks", "7.1", chunks(b"1\r\na\r\n2\r\nbc\r\n" + LAST), ABC),
    Case("size in lower case", "7.1", chunks(b"a\r\n0123456789\r\n" + LAST), served("POST / 0123456789")),
    Case("size in upper case", "7.1", chunks(b"A\r\n0123456789\r\n" + LAST), served("POST / 0123456789")),
    Case("size with zeros in front", "7.1", chunks(b"003\r\nabc\r\n" + LAST), ABC),
    Case("size with 30 zeros in front", "7.1", chunks(b"0" * 30 + b"3\r\nabc\r\n" + LAST), ABC),
    Case("last chunk of many zeros", "7.1", chunks(b"3\r\nabc\r\n000\r\n\r\n"), ABC),
    Case(
        "line ends in a chunk",
        "7.1",
        chunks(b"5\r\n\r\n0\r\n\r\n" + LAST),
        served("POST / \r\n0\r\n".rstrip()),
    ),
    Case("extension", "7.1.1", chunks(b"3;a=b\r\nabc\r\n" + LAST), ABC),
    Case("extension without a value", "7.1.1", chunks(b"3;a\r\nabc\r\n" + LAST), ABC),
    Case("quoted extension", "7.1.1", chunks(b'3;a="b;c"\r\nabc\r\n' + LAST), ABC),
    Case("two extensions", "7.1.1", chunks(b"3;a=b;c=d\r\nabc\r\n" + LAST), ABC),
    Case("blanks around an extension", "7.1.1", chunks(b"3 ; a=b\r\nabc\r\n" + LAST), ABC),
    Case("extension of the last chunk", "7.1.1", chunks(b"3\r\nabc\r\n0;a=b\r\n\r\n"), ABC),
    *(
        Case(f"size line {line!r}", "7.1", chunks(line + b"\r\nabc\r\n" + LAST), BAD)
        for line in (
            *(
                b"",
                b"g",
                b"-3",
                b"+3",
                b"0x3",
                b" 3",
                b"3 3",
                b"3,",
                b"3h",
                b"\xb3",
                b";a",
                b"3\0",
                b"3\r",
                b"1_0",
            ),
            *(b"3;a\rb", b"3;a\0b", b"3;a\nb", b"3;" + b"a" * 5000, b"f" * 16, b"f" * 40),
        )
    ),
    Case("bare LF after the size", "7.1", chunks(b"3\nabc\r\n" + LAST), BAD),
    Case("bare LF after the data", "7.1", chunks(b"3\r\nabc\n" + LAST), BAD),
    Case("bare CR after the data", "7.1", chunks(b"3\r\nabc\r" + LAST), BAD),
    Case("data longer than its size", "7.1", chunks(b"3\r\nabcd\r\n" + LAST), BAD),
    Case("data shorter than its size", "7.1", chunks(b"4\r\nabc\r\n" + LAST), BAD),
    Case(
        "chunks up to the limit",
        "7.1",
        chunks(b"3e8\r\n" + b"a" * 1000 + b"\r\n" + LAST),
        served(f"POST / {'a' * 1000}"),
    ),
    Case("size above the limit, without the data", "7.1", chunks(b"3e9\r\n"), refused(413)),
    Case("size of 2^60 - 1", "7.1", chunks(b"f" * 15 + b"\r\n"), refused(413)),
    Case("sizes above the limit together", "7.1", chunks(b"1\r\na\r\n3e8\r\n"), refused(413)),
]

TRAILERS = [
    Case("trailer", "7.1.2", chunks(b"3\r\nabc\r\n0\r\nA: b\r\n\r\n"), ABC),
    Case("two trailers", "7.1.2", chunks(b"3\r\nabc\r\n0\r\nA: b\r\nC:\r\n\r\n"), ABC),
    Case("trailers do not become headers", "6.5", chunks(b"0\r\nX-Case: b\r\n\r\n"), served("POST /")),
    Case(
        "trailers that frame are ignored",
        "9110: 6.5.1",
        chunks(b"0\r\nContent-Length: 9\r\n\r\n"),
        served("POST /"),
    ),
    Case(
        "trailer behind its announcement",
        "9110: 6.6.2",
        chunks(b"0\r\nA: b\r\n\r\n", "Trailer: A"),
        served("POST /"),
    ),
    *(
        Case(f"trailer {line!r}", "7.1.2", chunks(b"3\r\nabc\r\n0\r\n" + line + b"\r\n\r\n"), BAD)
        for line in (
            b"A",
            b": b",
            b"A : b",
            b" A: b",
            b"A: b\r\n c",
            b"A: \0",
            b"A: b\rc",
            b"A\xe9: b",
            b"A B: c",
        )
    ),
    Case("bare LF after a trailer", "7.1.2", chunks(b"0\r\nA: b\n\r\n"), BAD),
    Case("bare LF after the trailers", "7.1.2", chunks(b"0\r\nA: b\r\n\n"), BAD),
    Case("a request instead of the last line", "7.1.2", chunks(b"3\r\nabc\r\n0\r\n"), BAD),
    Case(
        "trailers of 70000 bytes", "9110: 5.4", chunks(b"0\r\n" + b"A: " + b"b" * 70_000 + b"\r\n\r\n"), BAD
    ),
]

SMUGGLING = [
    Case(f"smuggling: {lines!r}", "11.2", post(SMUGGLED, *lines), BAD)
    for lines in (
        (_length("6"), CHUNKED),
        (CHUNKED, _length("6")),
        (_length("5"), _length("60")),
        (_length("5, 60"),),
        (CHUNKED, _coding("identity")),
        (CHUNKED, _coding("x")),
        (_coding("identity"), _length("60")),
        (_length("60"), "Transfer-Encoding : chunked"),
        (_length("60"), "Transfer-Encoding\t: chunked"),
        (_length("60"), "Transfer-Encoding\0: chunked"),
        (_length("60"), "Transfer-Encoding\x0b: chunked"),
        (_length("60"), " Transfer-Encoding: chunked"),
        (_length("60"), "A: b\nTransfer-Encoding: chunked"),
        (_length("60"), "A: b\rTransfer-Encoding: chunked"),
        (_length("60"), "Transfer-Encoding:\r\n chunked"),
        (_length("60"), "Transfer-Encoding: \x0bchunked"),
        (_length("60"), "Transfer-Encoding: chunked\0"),
        (_length("60"), '"Transfer-Encoding": chunked'),
        (_length("5\r\n 0"),),
        ("Content-Length : 60", CHUNKED),
        ("A: b\nContent-Length: 60",),
        ("Content-Length\xa0: 60",),
        ("Upgrade: h2c", "Connection: Upgrade", _length("60"), CHUNKED),
    )
]

CASES = [*LENGTHS, *CODINGS, *CHUNKS, *TRAILERS, *SMUGGLING]
