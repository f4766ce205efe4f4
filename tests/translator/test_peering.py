"""Which peer a daemon takes for itself, and the errors of the configuration."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from interlingua.protocols.transport.address import parse_address, parse_url
from interlingua.protocols.transport.resolve import is_of_this_machine
from interlingua.runtime.upstream.pool import Member
from interlingua.translator.config import ConfigError, parse
from interlingua.translator.peering.build import is_here


@pytest.mark.parametrize(
    ("url", "addresses", "listener", "advertise", "here"),
    [
        ("127.0.0.1:8009", "", ":8009", "", True),
        ("127.0.0.1:8009", "", "0.0.0.0:8009", "", True),
        ("[::1]:8009", "", "[::]:8009", "", True),
        ("127.0.0.1:8010", "", ":8009", "", False),
        ("192.0.2.1:8009", "", ":8009", "", False),
        ("127.0.0.1:8009", "", "127.0.0.1:8009", "", True),
        ("127.0.0.2:8009", "", "127.0.0.1:8009", "", False),
        # a name: by its addresses, as soon as they are known
        ("peers:8009 (127.0.0.1)", "127.0.0.1", ":8009", "", True),
        ("peers:8009 (192.0.2.1)", "192.0.2.1", ":8009", "", False),
        ("peers:8009", "192.0.2.1,::1", ":8009", "", True),
        ("localhost:8009", "", ":8009", "", False),
        ("localhost:8009 (127.0.0.1)", "127.0.0.1", "localhost:8009", "", True),
        ("localhost:8009", "127.0.0.1,::1", "localhost:8009", "", True),
        # an address of a port forwarding
        ("192.0.2.1:9000", "", ":8009", "192.0.2.1:9000", True),
        ("192.0.2.2:9000", "", ":8009", "192.0.2.1:9000", False),
        ("127.0.0.1:8009", "", ":8009", "192.0.2.1:9000", False),
        ("peers:9000 (192.0.2.1)", "192.0.2.1", ":8009", "192.0.2.1:9000", True),
        ("unix:/run/a.sock", "", "unix:/run/a.sock", "", True),
        ("unix:/run/b.sock", "", "unix:/run/a.sock", "", False),
    ],
)
def test_a_daemon_knows_itself(url: str, addresses: str, listener: str, advertise: str, here: bool) -> None:
    known = tuple(filter(None, addresses.split(",")))
    advertised = parse_url(advertise, "grpc").address if advertise else None
    assert is_here(Member(None, url), known, parse_address(listener), advertised) is here


@pytest.mark.parametrize(
    ("url", "settle_secs", "faults"),
    [
        (
            "peers:8009",
            9.9,
            ["c.yaml:1: peers: settle_secs must be at least twice resolve_interval_secs, 10"],
        ),
        ("peers:8009", 10, []),
        ("127.0.0.1:8009", 1, []),
    ],
)
def test_the_list_is_confirmed_before_it_is_in_doubt(url: str, settle_secs: float, faults: list[str]) -> None:
    listener = {"listen": "127.0.0.1:8009", "transport": "grpc", "dialects": ["oip"]}
    peers = {"listener": "127.0.0.1:8009", "urls": [url], "settle_secs": settle_secs}
    found: list[str] = []
    try:
        parse(json.dumps({"listeners": [listener], "peers": peers}), "c.yaml")
    except ConfigError as error:
        found = error.lines
    assert found == faults


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_an_address_to_which_a_socket_can_be_bound_may_be_of_another_machine() -> None:
    """``ip_nonlocal_bind``, as machines with a virtual address have it."""
    program = (
        "import sys; open('/proc/sys/net/ipv4/ip_nonlocal_bind', 'w').write('1'); "
        "from interlingua.protocols.transport.resolve import is_of_this_machine as own; "
        "print(own('192.0.2.1'))"
    )
    ran = subprocess.run(["unshare", "-rn", sys.executable, "-c", program], capture_output=True, text=True)
    if "unshare" in ran.stderr:
        pytest.skip(ran.stderr)
    assert ran.stdout == "False\n", ran.stderr
    assert is_of_this_machine("127.0.0.1") and not is_of_this_machine("192.0.2.1")
