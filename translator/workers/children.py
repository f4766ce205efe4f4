"""Reloads in a process of several, as the supervisor orders them step by step."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from interlingua.protocols.transport.handover.received import RemoteListener
from interlingua.runtime.front_end.hub import Hub
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.known_models import Freeing
from interlingua.translator.admin import model_report
from interlingua.translator.assembly import Models
from interlingua.translator.config.options import Config
from interlingua.translator.listening import Listening
from interlingua.translator.logs import setup as logs
from interlingua.translator.reload.differences import Difference, Differences, differences
from interlingua.translator.reload.models import ModelSuccession
from interlingua.translator.reload.reloader import ConfigSuccession, prepared
from interlingua.translator.reload.server import SETTLE_SECS, ServerSuccession
from interlingua.translator.serving.settings import LogBook
from interlingua.translator.workers.child import Child, WorkerOrder
from interlingua.translator.workers.limits import SharedLimits

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The reply to ``prepare``: the ``errors`` that refuse the reload, else the ``models`` that differ."""

    errors: tuple[str, ...]
    models: Difference


class ChildReloads:
    """Carries out the steps that ``supervisor`` orders; ``succession`` makes the successor for an order, with
    the limits that it shares. ``close`` it after the last request."""

    def __init__(
        self,
        supervisor: Child,
        order: WorkerOrder,
        limits: SharedLimits,
        succession: Callable[[WorkerOrder, SharedLimits], ConfigSuccession],
    ) -> None:
        self._supervisor = supervisor
        self._succession = succession
        self._order = order
        self._limits = limits
        self._next: tuple[WorkerOrder, SharedLimits, ConfigSuccession] | None = None
        self._hurry: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._retiring: set[asyncio.Task[None]] = set()
        self._steps = asyncio.Lock()
        for step in (self.prepare, self.commit, self.finish, self.abort):
            supervisor.handle(step.__name__, partial(self._in_turn, step))

    async def _in_turn(self, step: Callable[..., Awaitable[Any]], value: Any, descriptors: list[int]) -> Any:
        """An abort may come while this process still prepares."""
        async with self._steps:
            return await step(value, descriptors)

    async def prepare(self, order: WorkerOrder, _: list[int]) -> Prepared:
        limits = self._supervisor.limits(order)
        succession = self._succession(order, limits)
        errors = await prepared(succession)
        if errors:
            limits.close()
            return Prepared(errors, Difference())
        self._next = order, limits, succession
        found = differences(self._order.config, order.config)
        succession.describe(found)
        return Prepared((), found["models"])

    async def commit(self, _: None, __: list[int]) -> bool:
        """Returns whether this process was prepared."""
        if self._next is None:
            return False
        await self._next[2].commit()
        return True

    async def finish(self, _: None, __: list[int]) -> bool:
        """Returns whether this process was prepared."""
        if self._next is None:
            return False
        self._order, limits, succession = self._next
        self._next = None
        await succession.finish()
        old, self._limits = self._limits, limits
        task = asyncio.create_task(self._retire(succession, old))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return True

    async def abort(self, _: None, __: list[int]) -> None:
        if self._next is not None:
            limits, succession = self._next[1:]
            self._next = None
            await succession.abort()
            limits.close()

    async def close(self) -> None:
        """Free what reloads have replaced."""
        if not self._hurry.done():
            self._hurry.set_result(None)
        await asyncio.gather(*self._retiring)

    async def _retire(self, succession: ConfigSuccession, limits: SharedLimits) -> None:
        try:
            await succession.retire(self._hurry)
        except Exception:
            _log.exception("replaced part not freed")
        limits.close()
        del succession, limits
        # servers and their connections refer to each other, and to a page of memory with a descriptor
        gc.collect()


@dataclass(slots=True)
class RunningModels:
    """What the runtime process serves; a reload replaces it."""

    models: Models[ModelCatalog]
    config: Config


@dataclass(slots=True)
class RuntimeSuccession:
    """Another configuration for the runtime process, whose models ``hub`` serves to front ends."""

    running: RunningModels
    config: Config
    hub: Hub
    log: LogBook
    limits: SharedLimits
    supervisor: Child
    models: ModelSuccession = field(init=False)
    _freeing: list[Freeing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.models = ModelSuccession(self.running.models, self.config)

    async def prepare(self) -> None:
        """See ``ServerSuccession``."""
        await self.models.prepare_remote(self.running.config)
        await self.models.prepare_local(self.running.config, self.running.models.catalog)

    async def commit(self) -> None:
        """Serve what is new. Returns when front ends know it."""
        self._freeing += self.models.commit()
        self.limits.share_gates(self.models.upstreams)
        self.supervisor.share_upstreams(self.models.upstreams)
        level = self.config.server.log_level
        if level != self.running.config.server.log_level:
            self.log.change(logs.settings(level))
        await self.hub.settle()

    async def finish(self) -> None:
        """Serve no longer what is removed."""
        self._freeing += self.models.finish()
        now = await self.models.succeed(self.running.config)
        catalog = self.running.models.catalog
        self.running.models = Models(catalog, now.upstreams, now.poller, now.cache, now.peers)
        self.running.config = self.config
        await self.hub.settle()

    async def retire(self, hurry: asyncio.Future[None]) -> None:
        """Free what was replaced."""
        await asyncio.wait((hurry,), timeout=SETTLE_SECS)
        await asyncio.gather(*(free() for free in self._freeing))
        await asyncio.gather(*(each.leave(hurry) for each in self.models.leaving))

    async def abort(self) -> None:
        """Free what was prepared."""
        await self.models.abort()

    def describe(self, found: Differences) -> None:
        """See ``ServerSuccession``."""
        self.models.describe(found, self.running.models.catalog.models)


@dataclass(slots=True)
class FrontEndSuccession:
    """Another configuration for a front end: that of ``server``, with what processes share. ``places`` are
    the listeners by number."""

    server: ServerSuccession
    limits: SharedLimits
    supervisor: Child
    places: dict[int, RemoteListener]

    async def prepare(self) -> None:
        """See ``ServerSuccession``, as for all methods."""
        await self.server.prepare()

    async def commit(self) -> None:
        upstreams = self.server.models.upstreams
        self.limits.share_gates(upstreams)
        self.supervisor.share_upstreams(upstreams)
        await self.server.commit()
        self.limits.share_loads(self.server.assembly.loads)
        self.limits.share_clients(self.server.assembly.clients)

    async def finish(self) -> None:
        await self.server.finish()
        assembly = self.server.assembly
        assembly.sources.parts["models"] = partial(model_report.collect_here, assembly.service.catalog)

    async def retire(self, hurry: asyncio.Future[None]) -> None:
        await self.server.retire(hurry)
        self._forget(self.server.listeners.leaving)

    async def abort(self) -> None:
        await self.server.abort()
        self._forget(self.server.listeners.fresh)

    def _forget(self, listening: Iterable[Listening]) -> None:
        places = [each.place for each in listening]
        for number, place in list(self.places.items()):
            if place in places:
                del self.places[number]

    def describe(self, found: Differences) -> None:
        self.server.describe(found)
