"""Connections of proxies that begin with a header of the PROXY protocol.

Each waits for its header outside the connection set of the server, which then gets the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import cast

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.hand_over import hand_over
from interlingua.protocols.transport.proxy_protocol import ProxyHeader, ProxyHeaderError, read_proxy_header
from interlingua.protocols.transport.sockets import client_host, set_client

HEADER_SECS = 5.0
"""How long a header may take to arrive: a proxy sends it at once."""

Trusts = Callable[[str], bool]
"""Whether a proxy at this address, empty for a unix socket, may report the address of its client."""

_UNKNOWN = ("unknown", 0)
_LOOPBACK = ("127.0.0.1", 0)
"""The address of clients that reach a proxy of this machine over a unix socket."""

_log = logging.getLogger(__name__)


class ProxiedConnection(asyncio.Protocol):
    """A connection until its header has arrived; ``accept`` makes the protocol that gets it then. Connections
    from addresses that ``trusts`` does not trust have no header. ``waiting`` has those that wait."""

    def __init__(
        self,
        address: Address,
        accept: Callable[[], asyncio.BaseProtocol],
        trusts: Trusts,
        waiting: set[ProxiedConnection],
    ) -> None:
        self._address = address
        self._accept = accept
        self._trusts = trusts
        self._waiting = waiting
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy, or a client, has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._peer = client_host(transport)
        if not self._trusts(self._peer):
            connection = self._accept()
            self._transport.set_protocol(connection)
            connection.connection_made(self._transport)
            return
        self._waiting.add(self)
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECS, self.abort)

    def data_received(self, data: bytes) -> None:
        """Read the header; what follows is for the server."""
        self._received += data
        try:
            header = read_proxy_header(self._received)
        except ProxyHeaderError as error:
            facts = {"address": str(self._address), "peer": self._peer, "reason": str(error)}
            _log.debug("malformed PROXY header, connection closed", extra={"facts": facts})
            self.abort()
            return
        if header is None:
            return
        self._leave()
        if not header.own:
            set_client(self._transport, client_of(header, self._peer))
        hand_over(self._transport, self._accept(), self._received[header.size :])

    def connection_lost(self, exc: Exception | None) -> None:
        """The header has not arrived."""
        self._leave()

    def abort(self) -> None:
        """Close the socket now."""
        self._transport.abort()

    def _leave(self) -> None:
        self._waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()


def client_of(header: ProxyHeader, peer: str) -> tuple[str, int]:
    """The name of the client's socket, as the proxy at ``peer`` reports it. Loopback addresses and unix
    sockets of other machines are unknown: such a client is not on this one."""
    local = header.unix or _is_loopback(header.host)
    if not (header.host or header.unix) or (local and peer and not _is_loopback(peer)):
        return _UNKNOWN
    return _LOOPBACK if header.unix else (header.host, header.port)


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
