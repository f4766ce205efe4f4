"""Follows host names: each address of a name is a server of the pool.

A name with one address of each family is one server, reached by either. While a lookup fails, the known
addresses stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from interlingua.runtime.upstream.pool.member import Member

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the numeric addresses of a host. Raises ``OSError``."""

Change = Callable[[Sequence[Member], Sequence[Member]], None]
"""Called with the servers that join and those that leave."""

_PATIENCE_SECS = 1.0
"""How long requests wait for the first lookup; then they use the name itself."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class HostName:
    """A ``host`` to follow. ``connect(address)`` makes the server at one of its addresses, or at its name for
    an empty ``address``; ``known`` are the servers in the pool."""

    host: str
    port: int
    connect: Callable[[str], Member]
    known: dict[str, Member]
    lost: bool = False

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
        go = [member for key, member in self.known.items() if key not in wanted]
        self.known = {key: member for key, member in self.known.items() if key in wanted} | come
        return list(come.values()), go


class HostNames:
    """Looks every name up at the start, and then every ``interval_secs``."""

    def __init__(self, names: Sequence[HostName], resolve: Resolve, interval_secs: float) -> None:
        self._names = names
        self._resolve = resolve
        self._interval = interval_secs
        self._task: asyncio.Task[None] | None = None
        self._known = asyncio.Event()

    async def follow(self, change: Change) -> None:
        """Report changes to ``change`` from now on. Returns after the first lookup of all names, or after a
        timeout."""
        if not self._names:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._follow(change))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._known.wait(), _PATIENCE_SECS)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _follow(self, change: Change) -> None:
        while True:
            for name in self._names:
                try:
                    addresses = await self._resolve(name.host, name.port)
                except OSError as error:
                    if not name.lost:
                        facts = {"host": name.host, "reason": str(error)}
                        _log.warning("upstream host not found", extra={"facts": facts})
                    name.lost = True
                    continue
                name.lost = False
                come, go = name.settle(addresses)
                if come or go:
                    change(come, go)
            self._known.set()
            await asyncio.sleep(self._interval)
