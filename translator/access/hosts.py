"""The host names that requests may be for, as a protection against DNS rebinding.

The owner of a domain can give it the address of a server, after a browser has loaded a page of the domain. To
the browser the server is then of the same site: the page may send any request and read the answers. ``Host``
still has the name of the domain (RFC 9110, section 7.2).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from interlingua.translator.access.addresses import read_address

ANY = "*"


class PermittedHosts:
    """The names that a ``Host`` may have: those of no foreign domain, and ``names``, with ``*`` all.

    The former are addresses, which no domain has to resolve, loopback names (RFC 6761, section 6.3), the name
    of this machine, and names without a dot, which are in no public domain.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset((*(name.lower().rstrip(".") for name in names), socket.gethostname().lower()))

    def permit(self, host: str) -> bool:
        """Whether a request for ``host``, with or without a port, may be answered; one without a host may."""
        name = _without_port(host).lower().rstrip(".")
        if "." not in name or name in self._names or ANY in self._names:
            return True
        return name.endswith(".localhost") or read_address(name) is not None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
