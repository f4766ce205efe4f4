"""The admin listener: opened first and closed last, so that it reports health while models load and while the
last requests end.

It has a thread and an event loop of its own: it answers whatever the event loop of the daemon does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial

from interlingua.protocols.transport import loop
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.tls import TlsContext
from interlingua.protocols.wire import HttpAnswer, parts_of
from interlingua.translator.admin import process
from interlingua.translator.admin.connections import MAX_CONNECTIONS, connection_limit
from interlingua.translator.admin.daemon_loop import DaemonLoop, StalledError
from interlingua.translator.admin.gate import AdminGate
from interlingua.translator.admin.handler import (
    AdminAction,
    AdminHandler,
    MetricsPage,
    Page,
    QueryPage,
    document,
    metrics_answer,
    plain,
)
from interlingua.translator.admin.loading import LOADING_ACTIONS, LOADING_PAGES
from interlingua.translator.admin.metrics import END, exposition
from interlingua.translator.admin.site import Site
from interlingua.translator.dashboard import assets
from interlingua.translator.dashboard.events import Cursor, EventPage, Viewers
from interlingua.translator.dashboard.history import Selection

STALLED_AFTER_SECS = 30.0
"""How long the event loop of the daemon may stall before ``/health/live`` reports it."""

_GRACE_SECS = 1.0
"""The grace period for answers in flight at shutdown."""

_log = logging.getLogger(__name__)


class AdminListener:
    """Listens at ``address`` within an ``async with``; does nothing if that is None. ``address`` becomes the
    bound one. ``gate`` permits pages. Until :meth:`show`, pages report that models are loading. ``socket``
    listens already; if another daemon answers there (``served``), this one does from :meth:`open` on. Raises
    ``OSError`` if the address is unavailable."""

    def __init__(
        self,
        address: Address | None,
        stalled_after_secs: float = STALLED_AFTER_SECS,
        gate: AdminGate | None = None,
        max_connections: int = MAX_CONNECTIONS,
        tls: TlsContext | None = None,
        socket: ListeningSocket | None = None,
        served: bool = False,
    ) -> None:
        self.address = address
        self.socket = socket
        self._served = served
        self._tls = tls
        self._gate = gate
        self._max_connections = max_connections
        self.stalled_after_secs = stalled_after_secs
        self._site: Site | None = None
        self._thread: _Thread | None = None
        self._viewers = Viewers()

    async def __aenter__(self) -> AdminListener:
        if self.address is not None:
            self._daemon = DaemonLoop()
            self._handler = AdminHandler({"/health/live": self._live, **LOADING_PAGES}, self._gate)
            self._handler.actions = LOADING_ACTIONS
            if not self._served:
                await self.open()
        return self

    async def open(self) -> None:
        """Listen, if it does not. Raises ``OSError``."""
        if self.address is None or self._thread is not None:
            return
        load = connection_limit(self.address, self._max_connections)
        place = Listener(self.address, tls=self._tls, socket=self.socket)
        self._thread = _Thread(self._handler, place, self._daemon, load, self._viewers)
        self.address = await self._thread.start()
        self.socket = place.socket
        _log.info("admin listening", extra={"facts": {"address": str(self.address)}})

    def retire(self) -> None:
        """Accept nothing more: a successor does."""
        if self._thread is not None:
            self._thread.retire()

    async def __aexit__(self, *_: object) -> None:
        if self._thread is not None:
            await self._thread.stop()
        if self._site is not None:
            await self._site.close()

    def show(self, site: Site, actions: Mapping[str, AdminAction] | None = None) -> None:
        self._site = site
        if self.address is not None:
            site.history.start()
            self._handler.pages = self._pages(site)
            self._handler.actions = {path: self._asked(act) for path, act in (actions or {}).items()}

    def _asked(self, action: AdminAction) -> AdminAction:
        return replace(action, act=lambda request: self._ask(partial(action.act, request)))

    def _pages(self, site: Site) -> Mapping[str, Page | QueryPage]:
        """The pages of the daemon, and those that need no answer from it."""
        pages = site.pages()
        reports = {path: self._daemon_page(page) for path, page in pages.items()}
        events = EventPage(partial(self._look, site), self._viewers)
        return {
            **reports,
            **assets.PAGES,
            "/events": QueryPage(events.write),
            "/health/live": self._live,
            "/metrics": MetricsPage(partial(self._metrics, site.metrics)),
        }

    def _daemon_page(self, page: Page | QueryPage) -> Page | QueryPage:
        if isinstance(page, QueryPage):
            return QueryPage(lambda query: self._ask(partial(page.write, query)))
        return partial(self._ask, page)

    async def _look(self, site: Site, selection: Selection, cursor: Cursor) -> tuple[bytes, Cursor]:
        try:
            return await self._daemon.call(partial(site.live.look, selection, cursor))
        except StalledError as stalled:
            raise ConnectionError(str(stalled)) from stalled

    async def _live(self) -> HttpAnswer:
        stalled = self._daemon.stalled_secs
        live = stalled < self.stalled_after_secs
        return document({"live": live, "stalled_secs": round(stalled, 1)}, 200 if live else 503)

    async def _ask(self, page: Page) -> HttpAnswer:
        try:
            return await self._daemon.call(page)
        except StalledError as stalled:
            return plain(503, str(stalled), (("retry-after", "1"),))

    async def _metrics(self, page: Page, openmetrics: bool) -> HttpAnswer:
        """All metrics, or while the daemon is stalled those of the process and of the stall."""
        try:
            wanted = page.openmetrics if openmetrics and isinstance(page, MetricsPage) else page
            found = await self._daemon.call(wanted)
            own = exposition(self._daemon.families(), openmetrics)
        except StalledError as stalled:
            # the stall may end while the page is written
            own = exposition(self._daemon.families(stalled.secs), openmetrics)
            found = metrics_answer(process.families(), openmetrics)
        if found.status == 200:
            parts = (*parts_of(found), own, *((END,) if openmetrics else ()))
            found = replace(found, parts=parts)
        return found


class _Thread:
    """The thread of the admin address. It does not keep a process alive that ends."""

    def __init__(
        self,
        handler: AdminHandler,
        place: Listener,
        daemon: DaemonLoop,
        load: ListenerLoad,
        viewers: Viewers,
    ) -> None:
        self._viewers = viewers
        self._server = HttpServer(handler, place, load=load, http2=DEFAULT_OPTIONS)
        self._daemon = daemon
        self._bound: Future[Address] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="admin", daemon=True)

    async def start(self) -> Address:
        """Listen. Raises ``OSError``."""
        self._thread.start()
        return await asyncio.wrap_future(self._bound)

    def retire(self) -> None:
        """See ``Server``."""
        self._loop.call_soon_threadsafe(self._viewers.close)
        self._loop.call_soon_threadsafe(self._server.retire)

    async def stop(self) -> None:
        """Answer what is in flight, then end."""
        if not self._ended.done():
            self._loop.call_soon_threadsafe(self._viewers.close)
            self._loop.call_soon_threadsafe(self._watch.cancel)
        await asyncio.wrap_future(self._ended)
        self._thread.join()

    def _run(self) -> None:
        try:
            loop.run(self._serve())
        except BaseException as failure:
            (self._ended if self._bound.done() else self._bound).set_exception(failure)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        bound = await self._server.start()
        self._loop = asyncio.get_running_loop()
        self._watch = self._loop.create_task(self._daemon.watch())
        self._bound.set_result(bound)
        with suppress(asyncio.CancelledError):
            await self._watch
        await self._server.stop(_GRACE_SECS)
