from __future__ import annotations

import pytest

from interlingua.translator.access.addresses import is_local, peer_address


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("ipv4:127.0.0.1:51000", True),
        ("ipv6:[::1]:51000", True),
        ("ipv6:%5B::1%5D:51000", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:51000", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("ipv4:10.0.0.1:51000", False),
        ("ipv6:[fe80::1%25eth0]:51000", False),
        ("", False),
        ("localhost", False),
        ("127.0.0.1.example.org", False),
        ("ipv4:", False),
    ],
)
def test_who_is_on_this_machine(peer: str, local: bool) -> None:
    assert is_local(peer_address(peer, "0.0.0.0:8000")) is local
    assert is_local(peer_address("", "unix:run/x.sock"))
