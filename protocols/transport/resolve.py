"""Host names, and the addresses of this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

_UNKNOWN = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})


def is_name(host: str) -> bool:
    """Whether ``host`` must be looked up: it is neither empty nor a numeric address."""
    if not host:
        return False
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return False


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The numeric addresses of ``host``, sorted. Raises ``OSError`` if it has none now."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(sorted({str(address[0]) for *_, address in found}))


def is_unknown(error: OSError) -> bool:
    """Whether ``error`` of :func:`resolve` is the resolver's answer that the name has no address."""
    return isinstance(error, socket.gaierror) and error.errno in _UNKNOWN


def is_of_this_machine(address: str) -> bool:
    """Whether the numeric ``address`` is one of an interface of this machine: packets to it come from it.
    With ``ip_nonlocal_bind``, a socket can be bound to addresses of other machines, too."""
    host = ipaddress.ip_address(address.partition("%")[0])
    if host.is_loopback:
        return True
    family = socket.AF_INET6 if host.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address, 9))  # sends nothing
        except OSError:
            return False
        return ipaddress.ip_address(str(sock.getsockname()[0]).partition("%")[0]) == host
