"""Whether a caller is on this machine.

Transports spell the peer in different ways: an IP address over HTTP, ``ipv4:127.0.0.1:51000``,
``ipv6:[::1]:51000`` (brackets perhaps escaped) or ``unix:…`` over gRPC, empty for a unix socket over HTTP.
Clients of a proxy on this machine look local.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote


def is_local(peer: str, listener: str) -> bool:
    """Whether ``peer`` of the listener bound to address ``listener`` is on this machine."""
    if listener.startswith("unix:"):
        return True
    try:
        address = ip_address(_host(unquote(peer)).partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def _host(peer: str) -> str:
    scheme, _, rest = peer.partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0].strip("[]")
