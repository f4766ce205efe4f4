"""The listening sockets of a configuration: received from systemd or a running daemon, or opened here."""

from __future__ import annotations

from collections.abc import Sequence

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.listening_socket import ListeningSocket, assign
from interlingua.translator.config.options import Config
from interlingua.translator.reload.differences import binds_itself
from interlingua.translator.takeover.messages import TakeoverError

ADMIN = "admin"
"""The name of the socket of the admin address; those of listeners have the name of their transport."""


class SocketPlan:
    """Which of the sockets ``activated`` by systemd and ``inherited`` from a daemon each address of
    ``config`` has. Raises ``TakeoverError`` for a socket of systemd that no listener has."""

    def __init__(
        self,
        config: Config,
        activated: Sequence[ListeningSocket] = (),
        inherited: Sequence[ListeningSocket] = (),
    ) -> None:
        self._config = config
        options = [each for each in config.listeners if not binds_itself(each)]
        wanted: list[tuple[Address, str]] = [(parse_address(each.listen), each.transport) for each in options]
        if config.admin is not None:
            wanted.append((parse_address(config.admin.listen), ADMIN))
        self._found, left = assign(wanted, [*activated, *inherited])
        unused = [each for each in left if each in activated]
        if unused:
            raise TakeoverError(f"no listener for the sockets of systemd: {_names(unused)}")
        # of listeners that the predecessor has and this configuration has not
        self._left = left
        self._inherited = inherited

    def listeners(self) -> list[ListeningSocket | None]:
        """The socket of each listener; None for one of grpcio. Opens all that were not received, or none.
        Raises ``OSError`` that names the address."""
        found: list[ListeningSocket | None] = []
        received = iter(self._found)
        try:
            for options in self._config.listeners:
                if binds_itself(options):
                    found.append(None)
                else:
                    found.append(_as(next(received), options.listen, options.transport))
        except OSError:
            for each in found:
                if each is not None:
                    each.close()
                    each.remove_file()
            raise
        return found

    def admin(self) -> ListeningSocket | None:
        """The socket of the admin address, if there is one. Raises ``OSError``."""
        options = self._config.admin
        return None if options is None else _as(self._found[-1], options.listen, ADMIN)

    @property
    def admin_is_served(self) -> bool:
        """Whether another daemon answers at the admin address."""
        return self._config.admin is not None and self._found[-1] in self._inherited

    def close_rest(self) -> None:
        """Close what the predecessor has served at addresses that are none of this configuration."""
        for each in self._left:
            each.close()
            each.remove_file()
        self._left = []


def _as(received: ListeningSocket | None, listen: str, name: str) -> ListeningSocket:
    """A received socket or a new one, as the successor of this process will look for it."""
    address = parse_address(listen)
    opened = received or ListeningSocket.open(address)
    opened.configured, opened.name = address, name
    return opened


def _names(sockets: Sequence[ListeningSocket]) -> str:
    return ", ".join(f"{each.address} ({each.name})" if each.name else str(each.address) for each in sockets)
