"""The address of a caller, and whether the caller is on this machine.

Transports spell the peer in different ways: an IP address over HTTP, ``ipv4:127.0.0.1:51000``,
``ipv6:[::1]:51000`` (brackets perhaps escaped) or ``unix:…`` over gRPC, empty for a unix socket over HTTP.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal
from urllib.parse import unquote

Network = IPv4Network | IPv6Network

PeerAddress = IPv4Address | IPv6Address | Literal["unix"] | None
"""The address of a caller: ``unix`` for a unix socket, None if it is unknown."""


def peer_address(peer: str, listener: str) -> PeerAddress:
    """The address of ``peer`` of the listener bound to address ``listener``."""
    if listener.startswith("unix:") and (not peer or peer.startswith("unix:")):
        return "unix"
    return read_address(_host(unquote(peer)))


@lru_cache(maxsize=1024)
def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """The IP address in ``text``, without its zone, an IPv4-mapped one as IPv4; None if there is none."""
    try:
        address = ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_local(address: PeerAddress) -> bool:
    """Whether a caller at ``address`` is on this machine: over a unix socket, or from a loopback address."""
    if address is None or isinstance(address, str):
        return address is not None
    return address.is_loopback


def read_network(text: str) -> Network:
    """The network in ``text``, in CIDR notation (RFC 4632, section 3.1), or of one address. Raises
    ``ValueError``."""
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is no network in CIDR notation, such as 10.0.0.0/8: {error}") from None
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError(f"'{text}': write IPv4 addresses as such")
    return network


def _host(peer: str) -> str:
    scheme, _, rest = peer.partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0].strip("[]")
