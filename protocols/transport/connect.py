"""Opens connections to an upstream. Errors leave its address to the caller."""

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
    """Connect to ``address`` with the protocol that ``make`` returns; ``host`` is its name or a numeric form
    of it. Raises ``UnsentError``."""
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
    """The system's text alone: asyncio's names the address too."""
    return os.strerror(fault.errno) if fault.errno and fault.errno > 0 else fault.strerror or str(fault)
