"""Another configuration for the server of one process, or for a front end of several."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from interlingua.protocols.transport.listener import Listener
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.known_models import Freeing
from interlingua.translator.access.build import authenticator_of, client_limits
from interlingua.translator.assembly import Assembly, metadata_of, router_of
from interlingua.translator.config.options import Config
from interlingua.translator.config.server import ServerOptions
from interlingua.translator.listening import Listening
from interlingua.translator.logs import setup as logs
from interlingua.translator.mirror.shared import MirrorSlots
from interlingua.translator.recording.begin import begin_recordings
from interlingua.translator.reload.differences import Differences
from interlingua.translator.reload.listeners import ListenerSuccession
from interlingua.translator.reload.models import ModelSuccession
from interlingua.translator.reload.traffic import TrafficSuccession
from interlingua.translator.serving.operations import Service

SETTLE_SECS = 1.0
"""How long requests that have chosen a model before may take to reach it: they are decoded meanwhile."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunningServer:
    """What serves now, which a reload replaces; the listeners ``leaving`` answer what is left. ``examines``:
    this process logs what is odd about routes."""

    assembly: Assembly
    listening: Sequence[Listening] = ()
    leaving: list[Listening] = field(default_factory=list)
    examines: bool = True


class ServerSuccession:
    """The successor of what ``running`` has, for ``config``. Call :meth:`prepare`, then :meth:`commit` and
    :meth:`finish`, or :meth:`abort`; ``retire`` at last."""

    def __init__(
        self,
        running: RunningServer,
        config: Config,
        places: Sequence[Listener] = (),
        slots: MirrorSlots | None = None,
    ) -> None:
        self._running = running
        self._before = before = running.assembly
        self._known = dict(before.service.catalog.models)
        self.models = ModelSuccession(before.models, config)
        # its models are those of before until the commit
        self.assembly = Assembly(
            config, before.service, before.models, before.load, before.clients, exporter=before.exporter
        )
        self.traffic = TrafficSuccession(
            before.config, config, before.service.router.routes, before.tap, slots
        )
        self.listeners = ListenerSuccession(running.listening, before.config, self.assembly, places)
        self._freeing: list[Freeing] = []

    async def prepare(self) -> None:
        """Build all that may fail. Raises ``OSError``, ``LoadError``, ``ReloadRefusedError``."""
        before, catalog = self._before, self._before.service.catalog
        self.assembly.authenticator = authenticator_of(self.assembly.config.auth)
        await self.listeners.prepare()
        await self.models.prepare_remote(before.config)
        if isinstance(catalog, ModelCatalog):
            await self.models.prepare_local(before.config, catalog)
        server = self.assembly.config.server
        if server.shares_files and not server.several_processes:
            begin_recordings(self.assembly.config, before.config)
        await self.traffic.prepare(catalog)

    async def commit(self) -> None:
        """Serve by the new configuration. Requests in flight end as they began."""
        assembly, service = self.assembly, self.assembly.service
        self._freeing += self.models.commit()
        _configure(service, assembly.config, self._before.config, self.traffic)
        assembly.load.max_requests = assembly.config.server.max_inflight_requests
        assembly.load.max_bytes = assembly.config.server.max_inflight_bytes
        assembly.clients.limit(client_limits(assembly.config.auth))
        self.listeners.commit()
        await self.listeners.start()

    async def finish(self) -> None:
        """Forget what is removed."""
        assembly, tap = self.assembly, self._before.tap
        self.listeners.leave()
        self._freeing += self.models.finish()
        assembly.models = await self.models.succeed(self._before.config)
        service = assembly.service
        service.observers = tuple(each for each in service.observers if each is not tap)
        assembly.observe(self.traffic.mirrors, self.traffic.tap)
        if self._before.examiner is not None:
            await self._before.examiner.stop()
        if assembly.examiner is not None and self._running.examines:
            assembly.examiner.start()
        self._running.assembly, self._running.listening = assembly, self.listeners.now
        for each in self.listeners.fresh:
            _log.info("listening", extra={"facts": each.facts()})

    async def retire(self, hurry: asyncio.Future[None]) -> None:
        """Drain and free what was replaced; at once when ``hurry`` is done, because the server stops."""
        server, leaving = self.assembly.config.server, self.listeners.leaving
        self._running.leaving += leaving
        draining = asyncio.create_task(_drained(leaving, server, hurry))
        await asyncio.wait((hurry,), timeout=SETTLE_SECS)
        await asyncio.gather(*(free() for free in self._freeing))
        await self.traffic.close_old()
        await asyncio.gather(*(each.leave(hurry) for each in self.models.leaving))
        await draining
        for each in leaving:
            self._running.leaving.remove(each)

    async def abort(self) -> None:
        """Free what was prepared; everything is as it was."""
        await self.traffic.abort()
        await self.models.abort()
        await self.listeners.abort()

    def describe(self, found: Differences) -> None:
        """Add what the files of models change to what differs."""
        self.models.describe(found, self._known)


def _configure(service: Service, config: Config, before: Config, traffic: TrafficSuccession) -> None:
    """Give ``service`` the options of ``config``. Changes by clients stay, except for a level of the
    log that the configuration changes."""
    server, memory = config.server, config.server.shared_memory
    service.router = router_of(config, service.catalog, traffic.routes, service.router.peers)
    service.metadata = metadata_of(config)
    service.id, service.offline_scope = server.id, server.offline_scope
    service.strict_readiness, service.ready_when_empty = server.strict_readiness, server.ready_when_empty
    service.shared_memory_for = memory.allow
    service.shared_memory.limit(memory.max_regions, memory.max_bytes)
    if server.log_level != before.server.log_level:
        service.log.change(logs.settings(server.log_level))
    service.access.mode = server.access_log
    service.plans = server.plans
    service.catalog.changes.happened()


async def _drained(leaving: Sequence[Listening], server: ServerOptions, hurry: asyncio.Future[None]) -> None:
    """Give the clients of ``leaving`` time to move to other connections, then stop."""
    if not leaving:
        return
    await asyncio.wait((hurry,), timeout=server.drain_secs)
    cut = sum(await asyncio.gather(*(each.server.stop(server.shutdown_timeout_secs) for each in leaving)))
    if cut:
        _log.warning("requests cut after reload", extra={"facts": {"count": cut}})
