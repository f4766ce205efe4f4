"""The life of a server of several processes; see ``translator.daemon`` for that of one."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.listener import Listener
from interlingua.runtime.cpus import available_cpus
from interlingua.translator.access.build import authenticator_of, authorization
from interlingua.translator.access.hosts import PermittedHosts
from interlingua.translator.admin.connections import connection_limit
from interlingua.translator.admin.gate import AdminGate
from interlingua.translator.admin.handler import AdminHandler
from interlingua.translator.compiled import is_compiled
from interlingua.translator.config.admin import AdminOptions
from interlingua.translator.config.options import Config
from interlingua.translator.listening import tls_of
from interlingua.translator.recording import shared_file
from interlingua.translator.signals import Signals
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


async def serve_workers(config: Config, path: str, stop: Signals) -> None:
    """Serve until a signal. Raises ``OSError`` for an address, ``StartupError``."""
    for options in config.listeners:
        if options.transport == "grpc" and options.engine == "library":
            raise StartupError(f"listener {options.listen}: engine library over grpc needs workers: 0")
    supervisor = Supervisor(config, workers_of(config))
    async with AsyncExitStack() as stack:
        if config.admin is not None:
            handler, site = _admin(config, config.admin, supervisor)
            place = Listener(parse_address(config.admin.listen), tls=tls_of(config.admin.tls, "http"))
            load = connection_limit(place.address, config.admin.max_connections)
            server = HttpServer(handler, place, load=load, http2=DEFAULT_OPTIONS)
            address = await server.start()
            _log.info("admin listening", extra={"facts": {"address": str(address)}})
            stack.push_async_callback(server.stop, _GRACE_SECS)
        cut = 0
        try:
            _begin_recordings(config)
            await supervisor.start()
            if config.admin is not None:
                handler.pages = site.pages()
            for options, address in zip(config.listeners, supervisor.addresses, strict=True):
                facts = {
                    "address": str(address),
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
            stop.reload = lambda: _log.error("reload refused", extra={"facts": {"reason": "server.workers"}})
            await stop.first
            secs = config.server.drain_secs
            _log.info("stopping", extra={"facts": {"drain_secs": secs}})
            await supervisor.leave()
            await asyncio.wait((stop.hurry,), timeout=secs)
        finally:
            grace = 0.0 if stop.second.done() else config.server.shutdown_timeout_secs
            cut = await supervisor.stop(grace, stop.second)
        if cut:
            _log.warning("requests cut at shutdown", extra={"facts": {"count": cut}})


def _begin_recordings(config: Config) -> None:
    """Put those of an earlier start aside, before the processes that write them. Raises ``OSError``."""
    if config.tap is not None:
        shared_file.begin(Path(config.tap.path), config.tap.max_files)
    for route in config.routes:
        if route.mirror is not None and route.mirror.keep is not None:
            shared_file.begin(Path(route.mirror.keep.path))


def _admin(
    config: Config, options: AdminOptions, supervisor: Supervisor
) -> tuple[AdminHandler, SupervisorSite]:
    gate = AdminGate(authorization(options, authenticator_of(config.auth)), PermittedHosts(options.hosts))
    site = SupervisorSite(supervisor, config)
    return AdminHandler(site.loading_pages(), gate), site
