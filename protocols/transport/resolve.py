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
    """Whether the numeric ``address`` is one of an interface of this machine: a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
        return True
