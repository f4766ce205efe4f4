"""The operator's own listener: bound like any other, closed after all of them."""

from __future__ import annotations

import logging

from protocols.transport.address import Address
from protocols.transport.http_server import HttpServer
from translator.admin.site import Site

_GRACE_SECS = 1.0
"""How long an answer that is on its way may take when the process ends."""

_log = logging.getLogger(__name__)


class AdminListener:
    """Serves ``site`` at ``address``. Start it once, stop it once, whether or not it has started."""

    def __init__(self, site: Site, address: Address) -> None:
        self._site = site
        self._server = HttpServer(site.handler(), address)
        self._started = False

    async def start(self) -> Address:
        """Listen. The bound address, port filled in; ``OSError`` where that cannot be."""
        address = await self._server.start()
        self._started = True
        _log.info("listening to operators", extra={"facts": {"address": str(address)}})
        return address

    async def stop(self) -> None:
        """Accept nothing more and let answers end."""
        if self._started:
            await self._server.stop(_GRACE_SECS)
        await self._site.close()
