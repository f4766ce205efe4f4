"""The life of the daemon: load, listen, serve until a signal, drain, close.

It stops in the order that load balancers need: report not ready but answer, accept nothing more, finish
running requests, close models and connections.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from interlingua.protocols.transport import loop
from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.runtime.allocator import tune_allocator
from interlingua.runtime.cpus import use_cpus
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.offload.pool import OffloadPool
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.schemas import LogSettings
from interlingua.translator.admin.gate import gate_of
from interlingua.translator.admin.handler import AdminAction
from interlingua.translator.admin.listener import AdminListener
from interlingua.translator.admin.log_level import log_level_action
from interlingua.translator.admin.overview import readiness
from interlingua.translator.admin.site import Site
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.compiled import is_compiled
from interlingua.translator.config.loader import log_former_names
from interlingua.translator.config.options import Config
from interlingua.translator.dashboard.trial import Trial, run, trial_action
from interlingua.translator.listening import Listening, listening_of, stopped, tls_of
from interlingua.translator.logs import setup as logs
from interlingua.translator.progress import LoadingProgress
from interlingua.translator.recording.begin import begin_recordings
from interlingua.translator.reload.page import reload_page
from interlingua.translator.reload.reloader import Reloader
from interlingua.translator.reload.server import RunningServer, ServerSuccession
from interlingua.translator.signals import Signals
from interlingua.translator.takeover.handover import Handover
from interlingua.translator.takeover.messages import TakeoverError
from interlingua.translator.takeover.socket_plan import SocketPlan
from interlingua.translator.takeover.state import Changes, carry_out, changes_of, models_of
from interlingua.translator.tuning import tune
from interlingua.translator.welcome import welcome
from interlingua.translator.workers.serve import serve_workers, workers_of
from interlingua.translator.workers.supervisor import StartupError

_log = logging.getLogger(__name__)

OK, FAILED = 0, 1


def serve(config: Config, path: str, take_over: bool = False) -> int:
    """Run the daemon with ``config``, the contents of the file at ``path``, until SIGTERM or SIGINT, or until
    another takes over; with ``take_over`` it takes over from one. Returns the exit code: 0 after an orderly
    stop, 1 if it could not start (an address in use, an unreadable repository). It starts without models that
    fail to load, and readiness reports them; but it does not take over from a daemon that is ready, unless it
    is, too."""
    role = "supervisor" if workers_of(config) else ""
    logs.set_up(config.server.log_level, config.server.log_format, role)
    log_former_names(path)
    tune()
    if config.server.tune_allocator:
        tune_allocator()
    try:
        logs.add_audit_file(config.server.audit_log)
        # before any thread or process starts, which inherit it
        use_cpus(config.server.cpus, len(config.server.cpus))
        return loop.run(_serve(config, path, Handover(config, take_over)))
    except (OSError, LoadError, StartupError, TakeoverError) as error:
        # the text of an error with a file name is complete
        text = isinstance(error, OSError) and error.filename is None and error.strerror
        _log.error("startup failed", extra={"facts": {"reason": str(text or error)}})
        return FAILED


async def _serve(config: Config, path: str, handover: Handover) -> int:
    signals = Signals()
    try:
        if workers_of(config):
            await serve_workers(config, path, signals, handover)
        else:
            async with _admin(config, handover.plan) as operators:
                await _load_and_serve(config, path, operators, signals, handover)
    finally:
        await handover.close()
        signals.ignore()
    _log.info("stopped")
    return OK


def _admin(config: Config, plan: SocketPlan | None = None) -> AdminListener:
    options, secs = config.admin, config.server.stalled_after_secs
    if options is None:
        return AdminListener(None, secs)
    gate = gate_of(options, config.auth)
    tls, plan = tls_of(options.tls, "http"), plan or SocketPlan(config)
    most, served = options.max_connections, plan.admin_is_served
    return AdminListener(parse_address(options.listen), secs, gate, most, tls, plan.admin(), served)


async def _load_and_serve(
    config: Config, path: str, operators: AdminListener, signals: Signals, handover: Handover
) -> None:
    if config.server.shares_files and handover.predecessor is None:
        begin_recordings(config)
    with LoadingProgress(sys.stderr) as progress:
        loaded = await asyncio.to_thread(load_local, config, progress)
    for name, reason in sorted(loaded.failed.items()):
        _log.error("model failed to load", extra={"facts": {"model": name, "reason": str(reason)}})
    async with OffloadPool():
        await _serve_models(assemble(config, loaded), path, operators, signals, handover)


async def _serve_models(
    assembly: Assembly, path: str, operators: AdminListener, signals: Signals, handover: Handover
) -> None:
    running = RunningServer(assembly)
    reloader = Reloader(path, assembly.config, partial(ServerSuccession, running))
    try:
        await assembly.service.catalog.warm_up()
        await assembly.start()
        if not signals.first.done():
            state, required = partial(readiness, assembly.service), assembly.service.required
            clients = ServiceState(running)
            await clients.carry_out(handover.changes)
            await handover.prepare(state, [name for name in _models(assembly)[1] if name in required])
            running.listening = listening = await _listen(assembly, handover.plan)
            site = assembly.site()
            reloader.applied.append(lambda: _show(operators, site, running, reloader))
            _show(operators, site, running, reloader)
            await operators.open()
            reloader.watchers.append(lambda begins: handover.reloading(begins, _status(running)))
            signals.reload = reloader.signalled
            poller = assembly.models.poller
            if poller is not None and poller.is_needed:
                poller.start()
            if assembly.examiner is not None:
                assembly.examiner.start()
            sockets = partial(_sockets, running, operators)
            await handover.serving(_status(running), signals, sockets, state, clients)
            _greet(assembly, listening, operators.address)
            await signals.first
            await reloader.stop()
            await _drain(running, operators, signals, handover)
    finally:
        await reloader.close()
        await running.assembly.close()


def _show(operators: AdminListener, site: Site, running: RunningServer, reloader: Reloader) -> None:
    """Show operators what runs now."""
    site.sources = running.assembly.sources
    site.configuration = reloader.configuration
    operators.stalled_after_secs = running.assembly.config.server.stalled_after_secs
    log = running.assembly.service.log

    async def change(settings: LogSettings) -> None:
        log.change(settings)

    async def infer(trial: Trial) -> dict[str, Any]:
        return await run(trial, running.assembly.config, running.listening)

    actions = {
        "/reload": AdminAction(lambda _: reload_page(reloader)),
        "/logging": log_level_action(change),
        "/try": trial_action(infer),
    }
    operators.show(site, actions)


async def _listen(assembly: Assembly, plan: SocketPlan | None = None) -> list[Listening]:
    """Bind every listener, or none. Raises ``OSError`` with the address that failed."""
    listening: list[Listening] = []
    # steps that may fail come before the first connection
    plan = plan or SocketPlan(assembly.config)
    sockets = zip(assembly.config.listeners, plan.listeners(), strict=True)
    places = [(each, Listener(parse_address(each.listen), socket=sock)) for each, sock in sockets]
    found = [listening_of(assembly, *each) for each in places]
    try:
        for each in found:
            await each.start()
            listening.append(each)
    except OSError:
        for each in listening:
            await each.server.stop(0)
        raise
    assembly.is_bound([(each.options, each.address) for each in listening])
    for each in listening:
        _log.info("listening", extra={"facts": each.facts()})
    served, failed = _models(assembly)
    if failed:
        _log.warning("models failed to load", extra={"facts": {"failed": ",".join(failed)}})
    facts_of_models = {"models": len(served), "of": len(served) + len(failed)}
    _log.info("serving", extra={"facts": {**facts_of_models, "compiled": is_compiled()}})
    return listening


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What clients change in a server of one process; see ``handover.ClientState``."""

    running: RunningServer

    async def changes(self) -> Changes:
        catalog = self.running.assembly.service.catalog
        assert isinstance(catalog, ModelCatalog), "it is of this process"  # noqa: S101
        return [*changes_of(self.running.assembly.service), *models_of(catalog)]

    async def carry_out(self, changes: Changes) -> None:
        await carry_out(changes, self.running.assembly.service)


def _sockets(running: RunningServer, operators: AdminListener) -> list[ListeningSocket]:
    """What a successor gets."""
    sockets = (*(each.place.socket for each in running.listening), operators.socket)
    return [each for each in sockets if each is not None]


def _status(running: RunningServer) -> str:
    """For systemd."""
    served, failed = _models(running.assembly)
    return f"serving {len(served)} of {len(served) + len(failed)} models"


def _models(assembly: Assembly) -> tuple[list[str], list[str]]:
    catalog = assembly.service.catalog
    return list(catalog.models), [name for name in catalog.names() if name not in catalog.models]


def _greet(assembly: Assembly, listening: list[Listening], operators: Address | None) -> None:
    """Print commands to try, at a terminal only: log collectors get log lines alone."""
    config = assembly.config
    if config.server.log_format == "text" and sys.stdout.isatty():
        bound = [(each.options, each.address) for each in listening]
        sys.stdout.write(welcome(config, bound, operators, *_models(assembly)))
        sys.stdout.flush()


async def _drain(
    running: RunningServer, operators: AdminListener, signals: Signals, handover: Handover
) -> None:
    assembly = running.assembly
    options = assembly.config.server
    if signals.successor is None:
        assembly.service.leave()
    else:
        # the server as a whole stays ready
        assembly.service.hand_over()
        for each in running.listening:
            each.server.retire()
        operators.retire()
    handover.stopping(signals.successor)
    _log.info("stopping", extra={"facts": {"drain_secs": options.drain_secs}})
    await asyncio.wait((signals.hurry,), timeout=options.drain_secs)
    grace = 0.0 if signals.second.done() else options.shutdown_timeout_secs
    servers = [each.server for each in (*running.listening, *running.leaving)]
    cut = await stopped(servers, grace, signals.second)
    if cut:
        _log.warning("requests cut at shutdown", extra={"facts": {"count": cut}})
