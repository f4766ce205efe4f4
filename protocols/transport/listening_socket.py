"""Sockets that listen before a server has them: opened here, or received from systemd or another daemon."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.sockets import SocketFile, bound, listen

_EVERY_INTERFACE = frozenset({"::", "0.0.0.0"})


@dataclass(slots=True, eq=False)
class ListeningSocket:
    """``sock`` listens at ``address``; the configuration it was opened for says ``configured``, systemd calls
    it ``name``. ``removes``: whether the file of a unix socket ends with it."""

    sock: socket.socket
    configured: Address | None = None
    name: str = ""
    removes: bool = True
    address: Address = field(init=False)
    _file: SocketFile = field(init=False)

    def __post_init__(self) -> None:
        self.address = bound(self.sock)
        self._file = SocketFile(self.address)

    @classmethod
    def open(cls, address: Address, kind: int = socket.SOCK_STREAM) -> ListeningSocket:
        """Listen at ``address``; at the path of a unix socket with a socket of this ``kind``. Raises
        ``OSError`` that names it."""
        return cls(listen(address, kind), address)

    def remove_file(self) -> None:
        """Unlink the file of a unix socket, unless it belongs to another process."""
        if self.removes:
            self._file.remove()

    def close(self) -> None:
        """Close it here; another process that has it goes on."""
        self.sock.close()


def assign(
    wanted: Sequence[tuple[Address, str]], received: Iterable[ListeningSocket]
) -> tuple[list[ListeningSocket | None], list[ListeningSocket]]:
    """For each address and name of ``wanted`` a socket of ``received`` or None, and the sockets left over.
    The configured address decides, then the bound one, then the name that systemd gives."""
    left = list(received)
    found: list[ListeningSocket | None] = [None] * len(wanted)
    rules: tuple[Callable[[ListeningSocket, Address, str], bool], ...] = (
        lambda each, address, name: each.configured == address and each.name == name,
        lambda each, address, _: each.configured == address,
        lambda each, address, _: _is_at(each.address, address),
        lambda each, _, name: each.configured is None and each.name == name,
    )
    for rule in rules:
        for number, (address, name) in enumerate(wanted):
            if found[number] is None:
                found[number] = match = next((each for each in left if rule(each, address, name)), None)
                if match is not None:
                    left.remove(match)
    return found, left


def _is_at(place: Address, wanted: Address) -> bool:
    """Whether a socket bound at ``place`` is one that listening at ``wanted`` would have made."""
    if place.path or wanted.path:
        return bool(place.path and wanted.path) and os.path.abspath(place.path) == os.path.abspath(
            wanted.path
        )
    if place.port != wanted.port:
        return False
    return place.host in _EVERY_INTERFACE if not wanted.host else _numeric(place.host) in _hosts(wanted.host)


def _hosts(name: str) -> set[str]:
    """The addresses of a host; none if it has none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {_numeric(str(place[0])) for *_, place in found}


def _numeric(host: str) -> str:
    """One spelling of an address."""
    try:
        return str(ip_address(host))
    except ValueError:
        return host
