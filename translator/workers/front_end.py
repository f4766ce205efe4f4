"""A front end: decodes, routes, calls upstreams, encodes. Its local models are in the runtime process."""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
from functools import partial
from typing import Any

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.handover.beats import PAGE_BYTES, Beats
from interlingua.protocols.transport.handover.received import RemoteListener, Takeover
from interlingua.runtime.cpus import use_cpus
from interlingua.runtime.front_end.catalog import FrontEndCatalog
from interlingua.runtime.ring.channel import Ends
from interlingua.schemas import InferenceError
from interlingua.translator.admin import model_report, overview
from interlingua.translator.admin.metrics import Family
from interlingua.translator.assembly import Assembly, Models, assemble_around
from interlingua.translator.dashboard.trial import Trial, run
from interlingua.translator.listening import listening_of, stopped
from interlingua.translator.mirror.shared import MirrorSlots, SharedMirrors
from interlingua.translator.peering.build import peers_of
from interlingua.translator.reload.server import RunningServer, ServerSuccession
from interlingua.translator.serving.changes import StateChange, repeat
from interlingua.translator.serving.totals import COUNTS
from interlingua.translator.upstream_assembly import upstream_models
from interlingua.translator.workers import child
from interlingua.translator.workers.child import Child, WorkerOrder
from interlingua.translator.workers.children import ChildReloads, FrontEndSuccession
from interlingua.translator.workers.limits import SharedLimits
from interlingua.translator.workers.placement import placed
from interlingua.translator.workers.reports import METRICS, Kind, merge
from interlingua.translator.workers.request_numbers import numbers

_log = logging.getLogger(__name__)


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of the socket ``descriptor``."""
    child.main(descriptor, _run)


async def _run(supervisor: Child) -> None:
    order, limits = await supervisor.start()
    use_cpus(placed(order.config.server.cpus, order.front_ends).front_ends, 0)
    servers, remote = upstream_models(order.config)
    limits.share_gates(servers)
    supervisor.share_upstreams(servers)
    catalog = FrontEndCatalog(remote)
    connected = asyncio.Event()

    async def connect(_: Any, descriptors: list[int]) -> None:
        await catalog.link.connect(Ends(*descriptors))
        connected.set()

    descriptors: list[int] = []
    supervisor.handle("mirrors", lambda _, more: descriptors.extend(more))
    supervisor.handle("channel", connect)
    await connected.wait()
    mirrors = SharedMirrors(descriptors, order.number)
    try:
        models = Models(catalog, servers, peers=peers_of(order.config, catalog.models))
        assembly = assemble_around(order.config, models, MirrorSlots(mirrors, order.mirrors))
    except OSError as error:
        supervisor.send("failed", str(error))
        return
    service = assembly.service
    service.started_ns = order.started_ns
    assembly.sources.parts["models"] = partial(model_report.collect_here, service.catalog)
    assembly.load.allocate = catalog.allocate
    service.traces.divide(order.number, order.front_ends)
    front_end = _FrontEnd(supervisor, order, limits, assembly, mirrors)
    try:
        await assembly.start()
        await front_end.serve()
    finally:
        await front_end.reloads.close()
        await front_end.running.assembly.close()


class _FrontEnd:
    def __init__(
        self,
        supervisor: Child,
        order: WorkerOrder,
        limits: SharedLimits,
        assembly: Assembly,
        mirrors: SharedMirrors,
    ) -> None:
        self._supervisor = supervisor
        self._mirrors = mirrors
        # one process logs suspicious routes
        self.running = RunningServer(assembly, examines=order.number == 0)
        self._order = order
        self._limits = limits
        self._listeners: dict[int, RemoteListener] = {}
        self._takeover: Takeover | None = None
        self.reloads = ChildReloads(supervisor, order, limits, self._succession)

    async def serve(self) -> None:
        """Serve until the supervisor ends it, then let running requests end."""
        assembly, order = self.running.assembly, self._order
        listening = [
            listening_of(assembly, *each)
            for each in zip(assembly.config.listeners, self._places(order), strict=True)
        ]
        for each in listening:
            await each.start()
        self.running.listening = listening
        self._limits.share_loads(assembly.loads)
        self._limits.share_clients(assembly.clients)
        assembly.is_bound([(each.options, each.address) for each in listening])
        if assembly.examiner is not None and self.running.examines:
            assembly.examiner.start()
        service, supervisor = assembly.service, self._supervisor
        supervisor.handle("report", lambda kind, _: self._report(kind))
        supervisor.handle("ready", lambda *_: overview.readiness(service))
        supervisor.handle("retire", lambda *_: self._retire())
        supervisor.handle("leave", lambda *_: service.leave())
        supervisor.handle("numbers", self._number)
        supervisor.handle("take", self._take)
        supervisor.handle("repeat", self._repeat)
        supervisor.handle("try", lambda trial, _: self._try(trial))
        service.share = partial(supervisor.request, "share")
        service.total = self._total
        supervisor.send("ready")
        grace = await supervisor.stopped()
        if self._takeover is not None:
            self._takeover.stop()
        servers = [each.server for each in (*self.running.listening, *self.running.leaving)]
        supervisor.send("cut", await stopped(servers, grace, supervisor.hurry))

    def _places(self, order: WorkerOrder) -> list[RemoteListener]:
        """The listeners of ``order``. One that has its number already stays."""
        for number, address in zip(order.numbers, order.addresses, strict=True):
            self._listeners.setdefault(number, RemoteListener(parse_address(address)))
        return [self._listeners[number] for number in order.numbers]

    def _succession(self, order: WorkerOrder, limits: SharedLimits) -> FrontEndSuccession:
        slots = MirrorSlots(self._mirrors, order.mirrors)
        server = ServerSuccession(self.running, order.config, self._places(order), slots)
        return FrontEndSuccession(server, limits, self._supervisor, self._listeners)

    def _number(self, _: Any, descriptors: list[int]) -> None:
        """Number requests with the counter of all front ends."""
        (descriptor,) = descriptors
        self.running.assembly.service.numbers = numbers(descriptor)

    def _take(self, _: Any, descriptors: list[int]) -> None:
        """Serve what the supervisor accepts: descriptors of its socket, and of the page of beats."""
        sock, page = descriptors
        beats = Beats(mmap.mmap(page, PAGE_BYTES))
        self._takeover = Takeover(
            socket.socket(fileno=sock), self._listeners, beats, self._connections, lambda: None
        )

    def _retire(self) -> None:
        """Another server accepts from now on."""
        self.running.assembly.service.hand_over()
        for each in self.running.listening:
            each.server.retire()

    def _connections(self) -> int:
        return sum(load.connections for load in self.running.assembly.loads)

    async def _repeat(self, changes: list[StateChange], _: list[int]) -> None:
        """Carry out what clients have changed in other front ends."""
        for change in changes:
            try:
                await repeat(change, self.running.assembly.service)
            except InferenceError as error:
                facts = {"operation": change.operation.value, "reason": error.message}
                _log.error("change not repeated", extra={"facts": facts})

    async def _report(self, kind: Kind) -> Any:
        """What this process adds to a report; None if it has no such report."""
        group, name = kind
        if kind == METRICS:
            return self._families()
        if group == "count":
            return COUNTS[name].collect(self.running.assembly.service)
        return await self.running.assembly.sources.part(name)

    async def _try(self, trial: Trial) -> dict[str, Any]:
        return await run(trial, self.running.assembly.config, self.running.listening)

    async def _total(self, name: str) -> Any:
        """See ``Service.total``. The supervisor queries the others."""
        kind = "count", name
        own = await self._report(kind)
        # counts that a client has seen must outlive this process
        return merge(kind, [own, *await self._supervisor.request("others", (kind, own))])

    def _families(self) -> list[Family]:
        """Every metric of this process."""
        return [family for source in self.running.assembly.sources.metrics for family in source()]
