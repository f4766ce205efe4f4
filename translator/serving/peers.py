"""Where a caller is: on this machine, or somewhere else.

A transport tells the peer in its own spelling: an IP address over HTTP, ``ipv4:127.0.0.1:51000``,
``ipv6:[::1]:51000`` (its brackets perhaps escaped) or ``unix:…`` over gRPC, and no text at all for a
unix socket over HTTP. A proxy on this machine makes its clients look as if they were here too.
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
