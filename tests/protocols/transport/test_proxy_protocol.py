"""The header of the PROXY protocol, held against the examples and limits of its specification."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.proxy_protocol import (
    MAX_LINE_BYTES,
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    read_proxy_header,
)

LONGEST = b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n"


def binary(command: int, family: int, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return SIGNATURE + struct.pack("!BBH", command, family, size) + body


def inet(host: str, port: int = 4242) -> bytes:
    source = ip_address(host)
    return source.packed + source.packed + struct.pack("!HH", port, 80)


TLVS = b"\x04\x00\x03abc\x02\x00\x0bexample.com"
UNIX = b"/run/a".ljust(108, b"\0") + b"/run/b".ljust(108, b"\0")

HEADERS = [
    (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65535)),
    (b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", ("192.168.0.1", 56324)),
    (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", ("2001:db8::1", 1)),
    (LONGEST[:-2] + b"\r\n", (str(ip_address("ffff:" * 7 + "ffff")), 65535)),
    (binary(0x21, 0x11, inet("10.1.2.3")), ("10.1.2.3", 4242)),
    (binary(0x21, 0x11, inet("10.1.2.3") + TLVS), ("10.1.2.3", 4242)),
    (binary(0x21, 0x21, inet("2001:db8::7")), ("2001:db8::7", 4242)),
    (binary(0x21, 0x21, inet("2001:db8::7") + TLVS), ("2001:db8::7", 4242)),
]

WITHOUT = [
    (b"PROXY UNKNOWN\r\n", "unknown"),
    (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", "unknown"),
    (binary(0x21, 0x00, b""), "unknown"),
    (binary(0x21, 0x00, TLVS), "unknown"),
    (binary(0x20, 0x00, b""), "own"),
    (binary(0x20, 0x11, inet("10.1.2.3")), "own"),
    (binary(0x20, 0xFF, TLVS), "own"),
    (binary(0x21, 0x31, UNIX), "unix"),
    (binary(0x21, 0x31, UNIX + TLVS), "unix"),
]

MALFORMED = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4\t1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1_0 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 \xb2 2\r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 000001 2\r\n",
    b"PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4 ::1 ::1 1 2\r\n",
    b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY TCP4 1.2.3.4 host 1 2\r\n",
    b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
    b"PROXY \r\n",
    b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n" + b" " * MAX_LINE_BYTES,
    b"PROXY UNKNOWN " + b"x" * MAX_LINE_BYTES,
    b"\r\n\r\n\x00\r\nQUIT\r\n",
    binary(0x11, 0x11, inet("10.1.2.3")),
    binary(0x31, 0x11, inet("10.1.2.3")),
    binary(0x22, 0x11, inet("10.1.2.3")),
    binary(0x21, 0x12, inet("10.1.2.3")),
    binary(0x21, 0x32, UNIX),
    binary(0x21, 0x41, inet("10.1.2.3")),
    binary(0x21, 0x11, inet("10.1.2.3")[:-1]),
    binary(0x21, 0x21, inet("10.1.2.3")),
    binary(0x21, 0x31, UNIX[:-1]),
    binary(0x21, 0x11, b""),
]


@pytest.mark.parametrize(("data", "client"), HEADERS)
def test_clients(data: bytes, client: tuple[str, int]) -> None:
    assert read_proxy_header(data) == ProxyHeader(len(data), *client)
    assert read_proxy_header(data + b"GET / HTTP/1.1\r\n\r\n") == ProxyHeader(len(data), *client)


@pytest.mark.parametrize(("data", "kind"), WITHOUT)
def test_headers_without_an_address(data: bytes, kind: str) -> None:
    expected = ProxyHeader(len(data), own=kind == "own", unix=kind == "unix")
    assert read_proxy_header(data + b"x") == expected


@pytest.mark.parametrize("data", [each for each, _ in HEADERS + WITHOUT])
def test_incomplete(data: bytes) -> None:
    assert len(LONGEST) <= MAX_LINE_BYTES
    for size in range(len(data)):
        assert read_proxy_header(data[:size]) is None


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        read_proxy_header(data)


@given(st.one_of(st.binary(), st.binary().map(b"PROXY ".__add__), st.binary().map(SIGNATURE.__add__)))
def test_any_bytes(data: bytes) -> None:
    try:
        header = read_proxy_header(data)
    except ProxyHeaderError:
        return
    assert header is None or 0 < header.size <= len(data)
