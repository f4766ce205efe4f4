"""The admin listener: opened first and closed last, so that it reports health while models load and while the
last requests end."""

from __future__ import annotations

import logging

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.wire import HttpAnswer
from interlingua.translator.admin.handler import AdminHandler, document, plain
from interlingua.translator.admin.site import Site

_GRACE_SECS = 1.0
"""The grace period for answers in flight at shutdown."""

_LOADING = "models are being loaded"

_log = logging.getLogger(__name__)


class AdminListener:
    """Listens at ``address`` within an ``async with``; does nothing if that is None. ``address`` becomes the
    bound one. Until :meth:`show`, pages report that models are loading. Raises ``OSError`` if the address is
    unavailable."""

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self._handler = AdminHandler(
            {"/health/live": _live, "/health/ready": _not_ready, "/metrics": _not_yet, "/": _not_yet}
        )
        self._server = None if address is None else HttpServer(self._handler, address)
        self._site: Site | None = None

    async def __aenter__(self) -> AdminListener:
        if self._server is not None:
            self.address = await self._server.start()
            _log.info("admin listening", extra={"facts": {"address": str(self.address)}})
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop(_GRACE_SECS)
        if self._site is not None:
            await self._site.close()

    def show(self, site: Site) -> None:
        self._site = site
        self._handler.pages = site.pages()


async def _live() -> HttpAnswer:
    return document({"live": True})


async def _not_ready() -> HttpAnswer:
    return document({"ready": False, "reasons": [_LOADING]}, 503)


async def _not_yet() -> HttpAnswer:
    return plain(503, _LOADING, (("retry-after", "1"),))
