"""Follows the servers of a pool: host names, and the file that lists servers.

While a lookup fails, the known addresses stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence

from interlingua.protocols.transport.resolve import is_unknown
from interlingua.runtime.upstream.pool.listing import Listing
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.pool.names import Change, HostName, Resolve

_PATIENCE_SECS = 1.0
"""How long requests wait for the first lookup; then they use the name itself."""

_log = logging.getLogger(__name__)


class Discovery:
    """Looks every name up at the start, and then every ``interval_secs``, and before that for changes of
    ``listing``, which may have names, too. Calls ``confirmed`` with the ``time.monotonic()`` of the start of
    each round after which the servers are known: the file is readable, and a resolver has answered about
    every name, with an address of one at least."""

    def __init__(
        self,
        names: Sequence[HostName],
        resolve: Resolve,
        interval_secs: float,
        listing: Listing | None = None,
    ) -> None:
        self._names = names
        self.listing = listing
        self._resolve = resolve
        self._interval = interval_secs
        self.confirmed: Callable[[float], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._known = asyncio.Event()

    @property
    def follows(self) -> bool:
        """Whether servers may come and go."""
        return bool(self._names) or self.listing is not None

    def addresses(self, member: Member) -> tuple[str, ...]:
        """The numeric addresses of ``member``, as far as they have been looked up."""
        for name in self.names():
            for address, known in name.known.items():
                if known is member:
                    return tuple(filter(None, address.split(",")))
        return ()

    async def follow(self, change: Change) -> None:
        """Report changes to ``change`` from now on. Returns after the first lookup of all names, or after a
        timeout."""
        if not self.follows:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._follow(change))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECS):
                await self._known.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def names(self) -> Iterator[HostName]:
        """All host names."""
        yield from self._names
        if self.listing is not None:
            yield from self.listing.names()

    async def _follow(self, change: Change) -> None:
        while True:
            began = time.monotonic()
            if self.listing is not None:
                await self.listing.poll(change)
            found = [await self._look_up(name, change) for name in list(self.names())]
            self._known.set()
            readable = self.listing is None or not self.listing.fault
            if (
                self.confirmed is not None
                and readable
                and False not in found
                and (True in found or not found)
            ):
                self.confirmed(began)
            await asyncio.sleep(self._interval)

    async def _look_up(self, name: HostName, change: Change) -> bool | None:
        """Whether a resolver has answered; None if the answer is that there is no such name."""
        try:
            addresses = await self._resolve(name.host, name.port)
        except OSError as error:
            if not name.lost:
                facts = {"host": name.host, "reason": str(error)}
                _log.warning("upstream host not found", extra={"facts": facts})
            name.lost = True
            return None if is_unknown(error) else False
        name.lost = False
        come, go = name.settle(addresses)
        if come or go:
            change(come, go)
        return True
