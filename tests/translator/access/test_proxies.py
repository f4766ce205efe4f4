"""Callers behind proxies: X-Forwarded-For as each engine hands it over, and as clients forge it."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from interlingua.protocols.transport.grpc.headers import read_headers
from interlingua.protocols.transport.http1.headers import parse_headers
from interlingua.schemas import Context
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.proxies import read_proxies
from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.loader import parse

TRUSTED = ("127.0.0.1", "10.0.0.0/8", "2001:db8::/32")


def native_http(*lines: str) -> Any:
    fields = "".join(f"X-Forwarded-For: {line}\r\n" for line in lines)
    return parse_headers(f"GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n".encode()).headers


def library_http(*lines: str) -> Any:
    return CIMultiDictProxy(CIMultiDict([("X-Forwarded-For", line) for line in lines]))


def native_grpc(*lines: str) -> Any:
    own = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/b"), (b":authority", b"h")]
    sent = [(b"x-forwarded-for", line.encode()) for line in lines]
    headers = read_headers([*own, (b"content-type", b"application/grpc"), *sent])
    assert headers is not None
    return headers.metadata


ENGINES = pytest.mark.parametrize("headers", [native_http, library_http, native_grpc])


def caller(
    peer: str, headers: Any, listener: str = "0.0.0.0:8000", trusted: tuple[str, ...] = TRUSTED
) -> str:
    authorization = Authorization(listener, proxies=read_proxies(trusted))
    return str(authorization.caller(Context(peer=peer, headers=headers)).address)


@ENGINES
@pytest.mark.parametrize(
    ("peer", "lines", "address"),
    [
        # no proxy is trusted at this address: the header is the client's own
        ("192.168.1.1", ["127.0.0.1"], "192.168.1.1"),
        ("192.168.1.1", ["10.0.0.1", "127.0.0.1"], "192.168.1.1"),
        # a proxy without the header
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", [", ,"], "127.0.0.1"),
        # one proxy
        ("127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("2001:db8::1", ["2001:db9::9"], "2001:db9::9"),
        # what the client claims stands further to the left
        ("127.0.0.1", ["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["127.0.0.1", "203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["10.0.0.7, 127.0.0.1 ,203.0.113.9"], "203.0.113.9"),
        # chains of trusted proxies
        ("127.0.0.1", ["127.0.0.1, 203.0.113.9, 10.0.0.7"], "203.0.113.9"),
        ("127.0.0.1", ["127.0.0.1", "203.0.113.9", "10.0.0.7"], "203.0.113.9"),
        ("10.0.0.1", ["127.0.0.1, 203.0.113.9,10.0.0.7, 10.9.9.9"], "203.0.113.9"),
        # a client on a machine of ours is not the balancer
        ("127.0.0.1", ["10.0.0.7"], "10.0.0.7"),
        ("127.0.0.1", ["127.0.0.1"], "127.0.0.1"),
        # the loopback address of another machine is not ours
        ("10.0.0.1", ["127.0.0.1"], "None"),
        ("10.0.0.1", ["::1"], "None"),
        ("10.0.0.1", ["127.0.0.1, 10.0.0.7"], "None"),
        # ports
        ("127.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("127.0.0.1", ["[2001:db9::9]:4711"], "2001:db9::9"),
        ("127.0.0.1", ["[2001:db9::9]"], "2001:db9::9"),
        # not an address
        ("127.0.0.1", ["unknown"], "None"),
        ("127.0.0.1", ["203.0.113.9, unknown"], "None"),
        ("127.0.0.1", ["203.0.113.9, 127.0.0.1.evil.example"], "None"),
        ("127.0.0.1", ["2130706433"], "None"),
        ("127.0.0.1", ["127.1"], "None"),
        ("127.0.0.1", ["0x7f.0.0.1"], "None"),
        ("127.0.0.1", ["127.0.0.1:x"], "None"),
        ("127.0.0.1", ["127.0.0.1%1"], "None"),
        ("127.0.0.1", ["203.0.113.9", ", ".join(["10.0.0.7"] * 32)], "None"),
        ("127.0.0.1", ["203.0.113.9", ", ".join(["10.0.0.7"] * 31)], "203.0.113.9"),
        ("127.0.0.1", ["unix"], "None"),
        ("127.0.0.1", ["localhost"], "None"),
    ],
)
def test_the_caller_behind_proxies(headers: Any, peer: str, lines: list[str], address: str) -> None:
    assert caller(peer, headers(*lines)) == address


@ENGINES
def test_unix_sockets(headers: Any) -> None:
    for peer in ("", "unix:"):
        assert caller(peer, headers("203.0.113.9"), "unix:run/x.sock") == "unix"
        assert caller(peer, headers("203.0.113.9"), "unix:run/x.sock", ("unix",)) == "203.0.113.9"
        assert caller(peer, headers("127.0.0.1"), "unix:run/x.sock", ("unix",)) == "127.0.0.1"
        assert caller(peer, headers(), "unix:run/x.sock", ("unix",)) == "unix"
    assert caller("203.0.113.9", headers("127.0.0.1"), trusted=("unix",)) == "203.0.113.9"


@ENGINES
def test_without_trusted_proxies_the_header_does_not_count(headers: Any) -> None:
    assert caller("127.0.0.1", headers("203.0.113.9"), trusted=()) == "127.0.0.1"
    assert caller("203.0.113.9", headers("127.0.0.1"), trusted=()) == "203.0.113.9"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("trusted_proxies: [localhost]", "listeners[0].trusted_proxies[0]: 'localhost' is no network"),
        ("proxy_protocol: true", "listeners[0].proxy_protocol: needs trusted_proxies"),
        (
            "trusted_proxies: [unix], engine: library, proxy_protocol: true",
            "listeners[0].proxy_protocol: needs engine: native",
        ),
    ],
)
def test_refused_configurations(options: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"listeners:\n  - {{listen: ':0', transport: http, {options}}}\n")
    (line,) = caught.value.lines
    assert said in line
