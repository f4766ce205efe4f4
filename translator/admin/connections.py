"""The limit on connections of an admin address."""

from __future__ import annotations

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.load import ListenerLoad

MAX_CONNECTIONS = 256
"""How many connections an address has by default; probes and scrapers need a few."""


def connection_limit(address: Address, most: int = MAX_CONNECTIONS) -> ListenerLoad:
    """The load of the admin address: connections that are only held do not keep out a probe."""
    return ListenerLoad(str(address), max_connections=most, evicts=True)
