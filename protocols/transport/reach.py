"""Checks whether a server listens at an address."""

from __future__ import annotations

import asyncio
import contextlib

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.connect import reason_of


async def unreachable(address: Address, timeout_secs: float) -> str:
    """Why ``address`` accepts no connection within ``timeout_secs``; empty if it does."""
    try:
        async with asyncio.timeout(timeout_secs):
            if address.path:
                _, writer = await asyncio.open_unix_connection(address.path)
            else:
                _, writer = await asyncio.open_connection(address.host, address.port)
    except TimeoutError:
        return f"no connection within {timeout_secs:g} seconds"
    except OSError as fault:
        return reason_of(fault)
    writer.close()
    with contextlib.suppress(OSError):  # the other side may be quicker
        await writer.wait_closed()
    return ""
