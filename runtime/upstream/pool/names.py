"""Follows host names: each address of a name is a server of the pool, and comes and goes with it.

A name with one address of each family is one server, which is reached by whichever works. While a name cannot
be looked up, what was known stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from interlingua.runtime.upstream.pool.member import Member

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the numeric addresses of a host. Raises ``OSError``."""

Change = Callable[[Sequence[Member], Sequence[Member]], None]
"""Gets the servers that join and those that leave."""

_PATIENCE_SECS = 1.0
"""How long requests wait for the first answer of a name server; from then on they go by the name."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class HostName:
    """A ``host`` to follow. ``connect(address)`` makes the server at one of its addresses, or at its
    name where ``address`` is empty; ``known`` are the servers in the pool."""

    host: str
    port: int
    connect: Callable[[str], Member]
    known: dict[str, Member]
    lost: bool = False

    @classmethod
    def of(cls, host: str, port: int, connect: Callable[[str], Member]) -> HostName:
        """The name before it is looked up: one server."""
        return cls(host, port, connect, {"": connect("")})

    def settle(self, addresses: Sequence[str]) -> tuple[list[Member], list[Member]]:
        """Take ``addresses`` over. Returns the servers that come, and those that go."""
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
        """Tell ``change`` of what changes from now on. Returns when all has been looked up once, or when that
        takes too long."""
        if not self._names:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._follow(change))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._known.wait(), _PATIENCE_SECS)

    async def stop(self) -> None:
        """End, and wait for that."""
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
