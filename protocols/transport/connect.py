"""Connections to an upstream, and why there is none, in words that leave its address to whoever knows it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TypeVar

from interlingua.protocols.transport.address import Address

Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)


class UnsentError(ConnectionError):
    """The connection failed before anything of a request was written to it."""


async def connect(address: Address, host: str, make: Callable[[], Protocol], within_secs: float) -> Protocol:
    """A connection to ``address``, of whose name ``host`` may be the numeric form, as the protocol that
    ``make`` gives. Raises ``UnsentError``."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(within_secs):
            if address.path:
                _, protocol = await loop.create_unix_connection(make, address.path)
            else:
                _, protocol = await loop.create_connection(make, host, address.port)
    except TimeoutError as late:
        raise UnsentError(f"gave no connection within {within_secs:g} seconds") from late
    except OSError as fault:
        raise UnsentError(f"cannot be reached: {reason_of(fault)}") from fault
    return protocol


def reason_of(fault: OSError) -> str:
    """The system's words alone: asyncio's own name the address too."""
    return os.strerror(fault.errno) if fault.errno and fault.errno > 0 else fault.strerror or str(fault)
