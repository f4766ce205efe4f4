"""A host name: each of its addresses is a server of the pool.

A name with one address of each family is one server, reached by either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from interlingua.runtime.upstream.pool.member import Member

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the numeric addresses of a host. Raises ``OSError``."""

Change = Callable[[Sequence[Member], Sequence[Member]], None]
"""Called with the servers that join and those that leave."""


@dataclass(slots=True)
class HostName:
    """A ``host`` to follow. ``connect(address)`` makes the server at one of its addresses, or at its name for
    an empty ``address``; ``known`` are the servers in the pool, each with its ``weight`` and ``zone``."""

    host: str
    port: int
    connect: Callable[[str], Member]
    known: dict[str, Member]
    lost: bool = False
    weight: float = 1.0
    zone: str = ""

    @classmethod
    def of(cls, host: str, port: int, connect: Callable[[str], Member]) -> HostName:
        """The name before its first lookup: one server."""
        return cls(host, port, connect, {"": connect("")})

    def settle(self, addresses: Sequence[str]) -> tuple[list[Member], list[Member]]:
        """Replace the addresses. Returns the servers that join, and those that leave."""
        new = [address for address in addresses if ":" in address]
        old = [address for address in addresses if ":" not in address]
        if len(new) == len(old) == 1:
            whole = ",".join(addresses)
            wanted = {whole: ""}
            if "" in self.known:
                self.known[whole] = self.known.pop("")
        else:
            wanted = {address: address for address in max(old, new, key=len)}
        come = {key: self.connect(address) for key, address in wanted.items() if key not in self.known}
        for member in come.values():
            member.weight, member.zone = self.weight, self.zone
        go = [member for key, member in self.known.items() if key not in wanted]
        self.known = {key: member for key, member in self.known.items() if key in wanted} | come
        return list(come.values()), go
