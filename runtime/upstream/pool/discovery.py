"""Follows the servers of a pool: host names, and the file that lists servers.

While a lookup fails, the known addresses stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from interlingua.runtime.upstream.pool.listing import Listing
from interlingua.runtime.upstream.pool.names import Change, HostName, Resolve

_PATIENCE_SECS = 1.0
"""How long requests wait for the first lookup; then they use the name itself."""

_log = logging.getLogger(__name__)


class Discovery:
    """Looks every name up at the start, and then every ``interval_secs``, and before that for changes of
    ``listing``, which may have names, too."""

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
        self._task: asyncio.Task[None] | None = None
        self._known = asyncio.Event()

    async def follow(self, change: Change) -> None:
        """Report changes to ``change`` from now on. Returns after the first lookup of all names, or after a
        timeout."""
        if not self._names and self.listing is None:
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
            names = list(self._names)
            if self.listing is not None:
                await self.listing.poll(change)
                names += self.listing.names()
            for name in names:
                await self._look_up(name, change)
            self._known.set()
            await asyncio.sleep(self._interval)

    async def _look_up(self, name: HostName, change: Change) -> None:
        try:
            addresses = await self._resolve(name.host, name.port)
        except OSError as error:
            if not name.lost:
                facts = {"host": name.host, "reason": str(error)}
                _log.warning("upstream host not found", extra={"facts": facts})
            name.lost = True
            return
        name.lost = False
        come, go = name.settle(addresses)
        if come or go:
            change(come, go)
