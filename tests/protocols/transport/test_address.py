"""Addresses and URLs as a configuration writes them."""

from __future__ import annotations

import pytest

from interlingua.protocols.transport.address import Address, Url, covers, parse_address, parse_url
from interlingua.protocols.transport.sockets import bound, listen

NO_ADDRESS = (
    "",
    "8000",
    "localhost",
    "host:",
    "host:x",
    "host:65536",
    "host:-1",
    "host:٣",
    "::1:8000",
    "[::1]",
)
NO_ADDRESS += ("a b:1", "http://h:1", "h:1/x", "unix:", "unix:/", "unix:run/", "unix://run/x", "unix:a\0b")
NO_ADDRESS += (f"unix:{'x' * 108}",)

NO_URL = ("", "h", ":8000", "h:0", "http://", "http://:80", "ftp://h:1", "grpc://h", "grpc://h:1/x", "unix:")
NO_URL += (
    "http://u@h:1",
    "http://h:1/a?b",
    "http://h:1/a#b",
    "http://h:1//a",
    "http://h:1/a b",
    "a://http://h:1",
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:8000", Address("::1", 8000)),
        ("[fe80::1%eth0]:1", Address("fe80::1%eth0", 1)),
        (":65535", Address("", 65535)),
        ("unix:run/x.sock", Address(path="run/x.sock")),
        ("unix:./run//x.sock", Address(path="run/x.sock")),
        ("unix:/run/x.sock", Address(path="/run/x.sock")),
        ("unix:///run/x.sock", Address(path="/run/x.sock")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", NO_ADDRESS)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_address(text)
    assert f"'{text}'" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", Url(Address("localhost", 8000))),
        ("localhost:8000/", Url(Address("localhost", 8000))),
        ("localhost:8000/models/x/", Url(Address("localhost", 8000), "", "/models/x")),
        ("http://h:8000", Url(Address("h", 8000), "http")),
        ("http://h", Url(Address("h", 80), "http")),
        ("https://h.example/base", Url(Address("h.example", 443), "https", "/base")),
        ("https://[::1]/base", Url(Address("::1", 443), "https", "/base")),
        ("grpc://h:9", Url(Address("h", 9), "grpc")),
        ("unix:/run/x.sock", Url(Address(path="/run/x.sock"))),
    ],
)
def test_urls(text: str, url: Url) -> None:
    assert parse_url(text) == url
    assert parse_url(str(url)) == url


@pytest.mark.parametrize("text", NO_URL)
def test_what_is_no_url_is_named(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_url(text)
    assert f"'{text}'" in str(refused.value)


def test_a_scheme_belongs_to_its_transport() -> None:
    assert parse_url("grpc://h:1", "grpc").scheme == "grpc"
    assert parse_url("h:1", "grpc").scheme == ""
    with pytest.raises(ValueError, match="one of grpc is meant"):
        parse_url("http://h:1", "grpc")
    with pytest.raises(ValueError, match="one of http, https is meant"):
        parse_url("grpc://h:1", "http")


@pytest.mark.parametrize(
    ("wide", "other", "expected"),
    [
        ("0.0.0.0:1", "127.0.0.1:1", True),
        (":1", "127.0.0.1:1", True),
        (":1", "[::1]:1", True),
        (":1", "somewhere:1", True),
        (":1", "0.0.0.0:1", True),
        ("[::]:1", "[::1]:1", True),
        ("0.0.0.0:1", "127.0.0.1:2", False),
        ("0.0.0.0:0", "127.0.0.1:0", False),
        ("127.0.0.1:1", "0.0.0.0:1", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("[::]:1", "127.0.0.1:1", False),  # sockets of IPv6 are bound for it alone
        ("0.0.0.0:1", "[::1]:1", False),
        ("0.0.0.0:1", "localhost:1", False),  # may be ::1
        ("unix:a", ":1", False),
        (":1", ":1", False),  # the same, not more
    ],
)
def test_which_address_takes_another(wide: str, other: str, expected: bool) -> None:
    assert covers(parse_address(wide), parse_address(other)) is expected


@pytest.mark.parametrize(
    ("wide", "other"), [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("", "0.0.0.0"), ("0.0.0.0", "")]
)
def test_the_system_sees_it_the_same_way(wide: str, other: str) -> None:
    with listen(Address(wide, 0)) as first:
        port = bound(first).port
        with pytest.raises(OSError, match="Address already in use"):
            listen(Address(other, port))
