"""The runtime process: loads the models, and runs the requests of front ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from interlingua.runtime.cpus import use_cpus
from interlingua.runtime.front_end.hub import Hub
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.ring.channel import Ends
from interlingua.translator.admin import model_report, models, process, ray, upstreams
from interlingua.translator.assembly import Models, build_models, load_local
from interlingua.translator.config.options import Config
from interlingua.translator.dashboard import traffic
from interlingua.translator.logs import setup as logs
from interlingua.translator.serving.settings import LogBook
from interlingua.translator.serving.totals import upstream_counts
from interlingua.translator.serving.trends import Trends
from interlingua.translator.takeover.state import models_of
from interlingua.translator.workers import child
from interlingua.translator.workers.child import Child
from interlingua.translator.workers.children import ChildReloads, RunningModels, RuntimeSuccession
from interlingua.translator.workers.placement import placed
from interlingua.translator.workers.reports import METRICS, TRAFFIC, Kind

_log = logging.getLogger(__name__)


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of the socket ``descriptor``."""
    child.main(descriptor, _run)


async def _run(supervisor: Child) -> None:
    order, limits = await supervisor.start()
    placement = placed(order.config.server.cpus, order.front_ends)
    use_cpus(placement.runtime, placement.engine_threads)
    config: Config = order.config
    try:
        loaded = await asyncio.to_thread(load_local, config)
    except LoadError as error:
        supervisor.send("failed", str(error))
        return
    for name, reason in sorted(loaded.failed.items()):
        _log.error("model failed to load", extra={"facts": {"model": name, "reason": str(reason)}})
    found = build_models(config, loaded)
    limits.share_gates(found.upstreams)
    supervisor.share_upstreams(found.upstreams)
    hub = Hub(found.catalog)
    running, reloads = RunningModels(found, config), None
    try:
        await found.catalog.warm_up()
        if found.peers is not None:
            # front ends forward; the models here forget what moves
            await found.peers.start(forwards=False)
        if found.poller is not None and found.poller.is_needed:
            found.poller.start()
        supervisor.handle("channel", lambda _, descriptors: hub.connect(Ends(*descriptors)))
        trends = Trends()
        supervisor.handle("report", lambda kind, _: _report(kind, running.models, trends))
        supervisor.handle("changed models", lambda *_: models_of(running.models.catalog))
        log = LogBook(logs.settings(config.server.log_level), logs.apply)
        supervisor.handle("log", lambda settings, _: log.change(settings))
        reloads = ChildReloads(
            supervisor,
            order,
            limits,
            lambda order, limits: RuntimeSuccession(running, order.config, hub, log, limits, supervisor),
        )
        supervisor.send("ready", (list(found.catalog.models), found.catalog.names()))
        await supervisor.stopped()
    finally:
        await hub.close()
        if reloads is not None:
            await reloads.close()
        await running.models.close()


async def _report(kind: Kind, found: Models[ModelCatalog], trends: Trends) -> Any:
    """What this process adds to a report; None if that is about front ends alone."""
    if kind == METRICS:
        cached = () if found.cache is None else process.cache_families(found.cache)
        return [*models.families(found.catalog), *cached, *ray.families(), *process.families()]
    if kind == ("report", "models"):
        return await model_report.collect(found.catalog)
    if kind == ("report", "ray"):
        return ray.report()
    if kind == ("report", "upstreams"):
        return upstreams.report(found.upstreams)
    if kind == TRAFFIC:
        return traffic.collect(found.catalog, found.upstreams)
    if kind == ("count", "models"):
        return upstream_counts(found.catalog)
    # no requests of clients, but processor time
    return trends.counts() if kind == ("count", "trends") else None
