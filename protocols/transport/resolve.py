"""Looks up host names."""

from __future__ import annotations

import asyncio
import ipaddress
import socket


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
