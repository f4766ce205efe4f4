"""The life of a server of several processes; see ``translator.daemon`` for that of one."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.protocols.wire import HttpAnswer
from interlingua.runtime.cpus import available_cpus
from interlingua.schemas import Operation
from interlingua.translator.admin.connections import connection_limit
from interlingua.translator.admin.gate import gate_of
from interlingua.translator.admin.handler import AdminAction, AdminHandler, document
from interlingua.translator.admin.loading import LOADING_ACTIONS
from interlingua.translator.compiled import is_compiled
from interlingua.translator.config.options import Config
from interlingua.translator.listening import tls_of
from interlingua.translator.recording.begin import begin_recordings
from interlingua.translator.reload.differences import binds_itself
from interlingua.translator.reload.page import reload_page
from interlingua.translator.reload.reloader import Reloader
from interlingua.translator.serving.operations import EVERY_DIALECT
from interlingua.translator.signals import Signals
from interlingua.translator.takeover.handover import Handover
from interlingua.translator.takeover.socket_plan import SocketPlan
from interlingua.translator.takeover.state import MODELS, MOVING, Changes, offline_in
from interlingua.translator.workers.group import GroupSuccession
from interlingua.translator.workers.site import SupervisorSite
from interlingua.translator.workers.supervisor import StartupError, Supervisor

_GRACE_SECS = 1.0
"""The grace period for answers of the admin address at shutdown."""

_log = logging.getLogger(__name__)


def workers_of(config: Config) -> int:
    """How many front ends ``config`` has; 0 for a server of one process."""
    workers = config.server.workers
    if workers != "auto":
        return workers
    # one CPU is left to the runtime process
    return max(1, (len(config.server.cpus) or available_cpus()) - 1)


async def serve_workers(config: Config, path: str, stop: Signals, handover: Handover) -> None:
    """Serve until a signal, or until another daemon takes over. Raises ``OSError`` for an address,
    ``StartupError``, ``TakeoverError``."""
    for options in config.listeners:
        if binds_itself(options):
            raise StartupError(f"listener {options.listen}: engine library over grpc needs workers: 0")
    supervisor = Supervisor(config, workers_of(config))
    site = SupervisorSite(supervisor, config)
    reloader = Reloader(path, config, partial(GroupSuccession, supervisor))
    plan = handover.plan
    async with AsyncExitStack() as stack:
        operators = _AdminAddress(config, site, plan)
        stack.push_async_callback(operators.stop)
        if not plan.admin_is_served:
            await operators.open()
        cut = 0
        try:
            if handover.predecessor is None:
                begin_recordings(config)
            state = GroupState(supervisor)
            state.begin(handover.changes)
            await supervisor.start(plan)
            await state.carry_out([each for each in handover.changes if each.operation in MODELS])
            await handover.prepare(site.readiness, _failed(config, supervisor))
            operators.show(reloader)
            await operators.open()
            supervisor.accept()
            status = _log_start(config, supervisor)
            reloader.applied.append(lambda: site.configure(supervisor.config))
            reloader.applied.append(lambda: operators.show(reloader))
            reloader.watchers.append(lambda begins: handover.reloading(begins, status))
            sockets = partial(_sockets, supervisor, operators)
            await handover.serving(status, stop, sockets, site.readiness, state, site.live)
            stop.reload = reloader.signalled
            await stop.first
            await reloader.stop()
            await _drain(supervisor, operators, stop, handover)
        finally:
            await reloader.close()
            grace = 0.0 if stop.second.done() else supervisor.config.server.shutdown_timeout_secs
            cut = await supervisor.stop(grace, stop.second)
        if cut:
            _log.warning("requests cut at shutdown", extra={"facts": {"count": cut}})


@dataclass(frozen=True, slots=True)
class GroupState:
    """What clients change in a server of several processes; see ``handover.ClientState``."""

    supervisor: Supervisor

    def begin(self, changes: Changes) -> None:
        """Have the processes that start carry ``changes`` out, except for models."""
        for each in changes:
            if each.operation not in MODELS:
                self.supervisor.changes.add(each)

    async def changes(self) -> Changes:
        log, started_offline = self.supervisor.changes, self.supervisor.config.server.start_offline
        made = [each for each in log.changes if each.operation in MOVING]
        if not any(each.operation is Operation.SET_ONLINE for each in made):
            made = [*offline_in((EVERY_DIALECT,) if started_offline else ()), *made]
        return made + (await self.supervisor.runtime.request("changed models") or [])

    async def carry_out(self, changes: Changes) -> None:
        for each in changes:
            if each.operation in MODELS:
                await self.supervisor.front_ends[0].repeat(each)
            else:
                await self.supervisor.share(None, each)


def _failed(config: Config, supervisor: Supervisor) -> list[str]:
    """The required models that have failed to load."""
    served, known = supervisor.models
    optional = {name for name, model in config.models.items() if not model.required}
    return [name for name in known if name not in served and name not in optional]


def _log_start(config: Config, supervisor: Supervisor) -> str:
    """Log what is served. Returns it for systemd."""
    for options, opened in zip(config.listeners, supervisor.listening, strict=True):
        facts = {
            "address": str(opened.address),
            "transport": options.transport,
            "dialects": ",".join(options.dialects),
        }
        _log.info("listening", extra={"facts": facts})
    served, known = supervisor.models
    failed = [name for name in known if name not in served]
    if failed:
        _log.warning("models failed to load", extra={"facts": {"failed": ",".join(failed)}})
    facts_of_models = {"models": len(served), "of": len(known), "compiled": is_compiled()}
    _log.info("serving", extra={"facts": facts_of_models})
    return f"serving {len(served)} of {len(known)} models"


async def _drain(supervisor: Supervisor, operators: _AdminAddress, stop: Signals, handover: Handover) -> None:
    if stop.successor is not None:
        # the server as a whole stays ready
        supervisor.retire()
        operators.retire()
    handover.stopping(stop.successor)
    secs = supervisor.config.server.drain_secs
    _log.info("stopping", extra={"facts": {"drain_secs": secs}})
    if stop.successor is None:
        await supervisor.leave()
    await asyncio.wait((stop.hurry,), timeout=secs)


def _sockets(supervisor: Supervisor, operators: _AdminAddress) -> list[ListeningSocket]:
    """What a successor gets."""
    admin = operators.socket
    return supervisor.listening if admin is None else [*supervisor.listening, admin]


async def _configuration(reloader: Reloader) -> HttpAnswer:
    return document(await reloader.configuration())


class _AdminAddress:
    """The admin address, if ``config`` has one, with the pages of ``site``."""

    def __init__(self, config: Config, site: SupervisorSite, plan: SocketPlan) -> None:
        self._site = site
        self._server: HttpServer | None = None
        self._opened = False
        self.socket: ListeningSocket | None = None
        options = config.admin
        if options is None:
            return
        self.socket = plan.admin()
        self._handler = AdminHandler(site.loading_pages(), gate_of(options, config.auth))
        self._handler.actions = LOADING_ACTIONS
        place = Listener(parse_address(options.listen), tls=tls_of(options.tls, "http"), socket=self.socket)
        load = connection_limit(place.address, options.max_connections)
        self._server = HttpServer(self._handler, place, load=load, http2=DEFAULT_OPTIONS)

    async def open(self) -> None:
        """Answer, if it does not."""
        if self._server is not None and not self._opened:
            self._opened = True
            address = await self._server.start()
            _log.info("admin listening", extra={"facts": {"address": str(address)}})

    def show(self, reloader: Reloader) -> None:
        """Have the pages of a server whose processes have started, and the reload of ``reloader``."""
        if self._server is not None:
            self._site.history.start()
            self._handler.pages = {**self._site.pages(), "/config": partial(_configuration, reloader)}
            reload = AdminAction(lambda _: reload_page(reloader))
            self._handler.actions = {**self._site.actions(), "/reload": reload}

    def retire(self) -> None:
        """Accept nothing more: a successor does."""
        if self._server is not None:
            self._site.viewers.close()
            self._server.retire()

    async def stop(self) -> None:
        """Answer what is in flight, then end."""
        await self._site.history.close()
        self._site.viewers.close()
        if self._server is not None and self._opened:
            await self._server.stop(_GRACE_SECS)
