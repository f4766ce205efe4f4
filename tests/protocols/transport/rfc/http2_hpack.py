"""Field blocks (RFC 7541): tables, integers, strings."""

from __future__ import annotations

from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from tests.protocols.transport.h2.peer import block, fields
from tests.protocols.transport.rfc.http2 import Case, answered, goaway, request, reset, streams

OK, ERROR = answered(1), goaway("COMPRESSION_ERROR")
CALL = "/test.Echo/Call"
PATH = fields()[2:3]
POST, HTTP, ROOT = b"\x83", b"\x86", b"\x84"
"""Entries of the static table."""

REST = block(fields()[3:])
WHOLE = block(fields())
PSEUDO = POST + HTTP + block(PATH)
LAST_SIZE = 4096
_HUFFMAN = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


def update(size: bytes) -> bytes:
    """A dynamic table size update with ``size`` as its integer."""
    return bytes((0x20 | size[0],)) + size[1:]


def text(value: bytes, huffman: bool = False) -> bytes:
    """A string of less than 127 bytes."""
    return bytes((len(value) | huffman << 7,)) + value


def field(value: bytes, first: bytes = b"\0") -> bytes:
    """A field ``a`` whose value is the string ``value`` on the wire."""
    return PSEUDO + REST + first + text(b"a") + value


TABLES = [
    Case("static table", "7541: 6.1", request(1, PSEUDO + REST), OK),
    Case("index 0", "7541: 6.1", request(1, b"\x80"), ERROR),
    Case("index behind the static table", "7541: 2.3.3", request(1, b"\xbe"), ERROR),
    Case("index far behind the tables", "7541: 2.3.3", request(1, b"\xff\xff\xff\xff\x07"), ERROR),
    Case("name behind the static table", "7541: 6.2.1", request(1, b"\x7e\x01a"), ERROR),
    Case(
        "literal with a name of the static table",
        "7541: 6.2.2",
        request(1, POST + HTTP + b"\x04" + text(CALL.encode()) + REST),
        OK,
    ),
    Case("literal without indexing", "7541: 6.2.2", request(1, field(text(b"b"))), OK),
    Case("literal never indexed", "7541: 6.2.3", request(1, field(text(b"b"), b"\x10")), OK),
    Case(
        "never-indexed literals do not enter the table",
        "7541: 6.2.3",
        request(1, field(text(b"b"), b"\x10")) + request(3, PSEUDO + REST + b"\xbe"),
        ERROR,
    ),
    Case("literal with indexing", "7541: 6.2.1", request(1, field(text(b"b"), b"\x40")), OK),
    Case(
        "entry of the dynamic table",
        "7541: 2.3.2",
        request(1, POST + HTTP + b"\x44" + text(CALL.encode()) + REST)
        + request(3, POST + HTTP + b"\xbe" + REST),
        answered(1, 3),
    ),
    Case(
        "entries of the dynamic table are the newest first",
        "7541: 2.3.2",
        request(1, POST + HTTP + b"\x44" + text(CALL.encode()) + REST + b"\x40\1a\1b")
        + request(3, POST + HTTP + b"\xbf" + REST),
        answered(1, 3),
    ),
    Case(
        "blocks of refused requests count",
        "4.3",
        request(1, POST + HTTP + b"\x44" + text(CALL.encode()) + block([("connection", "x")]))
        + request(3, POST + HTTP + b"\xbe" + REST),
        streams(s1="reset PROTOCOL_ERROR", s3="ok"),
    ),
    Case(
        "blocks of trailers count",
        "4.3",
        request(1, WHOLE, content=None)
        + request(1, b"\x44" + text(CALL.encode()), 5, None)
        + request(3, POST + HTTP + b"\xbe" + REST),
        streams(s1="reset PROTOCOL_ERROR", s3="ok"),
    ),
    Case(
        "evicted entry",
        "7541: 4.4",
        request(1, PSEUDO + REST + b"\x40" + text(b"a") + text(b"b"))
        + request(3, update(b"\0") + PSEUDO + REST + b"\xbe"),
        ERROR,
    ),
    Case(
        "entry larger than the table",
        "7541: 4.4",
        request(1, update(b"\x1f\x01") + PSEUDO + REST + b"\x40" + text(b"a") + text(b"b"))
        + request(3, PSEUDO + REST + b"\xbe"),
        ERROR,
    ),
    Case("size update to 0", "7541: 6.3", request(1, update(b"\0") + WHOLE), OK),
    Case("size update to the limit", "7541: 6.3", request(1, update(b"\x1f\xe1\x1f") + WHOLE), OK),
    Case("size update above the limit", "7541: 6.3", request(1, update(b"\x1f\xe2\x1f") + WHOLE), ERROR),
    Case("two size updates", "7541: 4.2", request(1, update(b"\0") + update(b"\x1f\xe1\x1f") + WHOLE), OK),
    Case("size update inside a block", "7541: 4.2", request(1, POST + update(b"\0") + WHOLE), ERROR),
    Case("size update at the end", "7541: 4.2", request(1, WHOLE + update(b"\0")), ERROR),
]

INTEGERS = [
    Case("integer with a zero in front", "7541: 5.1", request(1, field(b"\x7f\x80\x00" + b"b" * 127)), OK),
    Case("integer of ten bytes", "7541: 5.1", request(1, field(b"\x7f" + b"\xff" * 9 + b"\x01")), ERROR),
    Case("index of ten bytes", "7541: 5.1", request(1, b"\xff" + b"\xff" * 9 + b"\x01"), ERROR),
    Case("size update of ten bytes", "7541: 5.1", request(1, update(b"\x1f" + b"\xff" * 9 + b"\x01")), ERROR),
    Case("integer cut off", "7541: 5.1", request(1, b"\xff\x80"), ERROR),
    Case("length cut off", "7541: 5.1", request(1, PSEUDO + b"\0"), ERROR),
]

STRINGS = [
    Case("Huffman code", "7541: 5.2", request(1, field(text(_HUFFMAN.encode(b"bcd"), True))), OK),
    Case(
        "Huffman code of the path",
        "7541: 5.2",
        request(1, POST + HTTP + b"\x04" + text(_HUFFMAN.encode(CALL.encode()), True) + REST),
        OK,
    ),
    Case("empty string", "7541: 5.2", request(1, field(text(b""))), OK),
    Case("empty Huffman code", "7541: 5.2", request(1, field(text(b"", True))), OK),
    Case("string longer than the block", "7541: 5.2", request(1, field(b"\x05abc")), ERROR),
    Case("name longer than the block", "7541: 5.2", request(1, PSEUDO + b"\0\x05abc"), ERROR),
    Case("name without a value", "7541: 6.2", request(1, PSEUDO + b"\0" + text(b"a")), ERROR),
    Case("Huffman padding of zeros", "7541: 5.2", request(1, field(text(b"\x18", True))), ERROR),
    Case("Huffman padding of 8 bits", "7541: 5.2", request(1, field(text(b"\x1f\xff", True))), ERROR),
    Case("Huffman padding of 24 bits", "7541: 5.2", request(1, field(text(b"\xff\xff\xff", True))), ERROR),
    Case("Huffman code with EOS", "7541: 5.2", request(1, field(text(b"\xff\xff\xff\xff", True))), ERROR),
    Case(
        "Huffman code with EOS inside",
        "7541: 5.2",
        request(1, field(text(b"\x1f\xff\xff\xff\xe3", True))),
        ERROR,
    ),
    Case(
        "Huffman code cut off",
        "7541: 5.2",
        request(1, field(text(_HUFFMAN.encode(b"\x01\x02")[:-1], True))),
        ERROR,
    ),
]

SIZES = [
    Case(
        "header list above the limit",
        "10.5.1",
        request(1, WHOLE + (b"\0" + text(b"a") + text(b"b" * 120)) * 600),
        streams(s1="status 8"),
    ),
    Case(
        "header list above the limit by references",
        "10.5.1",
        request(1, WHOLE + b"\x40" + text(b"a") + text(b"b" * 120) + b"\xbe" * 600),
        streams(s1="status 8"),
    ),
    Case(
        "header list of many MiB by references",
        "10.5.1",
        request(1, WHOLE + b"\x40" + text(b"a") + text(b"b" * 120) + b"\xbe" * 15_000),
        goaway("ENHANCE_YOUR_CALM"),
        limit=True,
    ),
    Case("empty field block", "8.3.1", request(1, b""), reset("PROTOCOL_ERROR")),
]

CASES = [*TABLES, *INTEGERS, *STRINGS, *SIZES]
