"""The client of a proxy, by the header that the proxy adds.

``X-Forwarded-For`` is a list of addresses, to which each proxy appends that of its own client. A client may
send the header too, so only what trusted proxies have appended counts: the last address that is not of a
trusted proxy, as with Envoy's ``xff_num_trusted_hops`` and nginx's ``real_ip_recursive``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from interlingua.protocols.wire import FORWARDED_FOR
from interlingua.translator.access.addresses import Network, PeerAddress, is_local, read_address, read_network

MAX_HOPS = 32
"""The largest number of trusted proxies in a row; a client behind more is unknown."""

UNIX = "unix"
"""The word for proxies that connect over a unix socket."""

_WITH_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]{1,5})?|([^:]*):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """Proxies that may report the addresses of their clients: those in ``networks`` and, with ``unix``, those
    that connect over a unix socket."""

    networks: tuple[Network, ...] = ()
    unix: bool = False

    def covers(self, address: PeerAddress) -> bool:
        """Whether a trusted proxy is at ``address``."""
        if address is None or isinstance(address, str):
            return self.unix and address is not None
        return any(address in network for network in self.networks)

    def client(self, peer: PeerAddress, headers: Mapping[str, str]) -> PeerAddress:
        """The address of the client whose request has ``headers`` and comes from ``peer``, which is the
        client itself if it is no trusted proxy or reports no address."""
        if not self.covers(peer):
            return peer
        client: PeerAddress = peer
        for number, entry in enumerate(_entries_backwards(headers)):
            client = _read_entry(entry) if number < MAX_HOPS else None
            if not self.covers(client):
                break
        # the loopback address of another machine is not on this one
        return client if is_local(peer) or not is_local(client) else None


def read_proxies(words: Iterable[str]) -> TrustedProxies:
    """The proxies that ``words`` name. Raises ``ValueError``."""
    stated = tuple(words)
    return TrustedProxies(tuple(read_network(word) for word in stated if word != UNIX), UNIX in stated)


def _entries_backwards(headers: Mapping[str, str]) -> Iterator[str]:
    """The entries of all lines of the header, the last first."""
    lines = getattr(headers, "getall", None)
    values = [headers.get(FORWARDED_FOR, "")] if lines is None else lines(FORWARDED_FOR, ())
    for entry in reversed(",".join(values).split(",")):
        if stripped := entry.strip(" \t"):
            yield stripped


def _read_entry(entry: str) -> PeerAddress:
    """The address of an entry, which some proxies write with a port; None if it is something else."""
    with_port = _WITH_PORT.fullmatch(entry)
    return read_address(entry if with_port is None else with_port[1] or with_port[2] or "")
