"""The pages of the admin address that the daemon answers, by path.

Metrics are collected on the event loop, one family at a time, and formatted in a thread: with a thousand
models that takes a while, and requests must proceed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import Any

import orjson

from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.wire import HttpAnswer
from interlingua.runtime.models.response_cache import ResponseCache
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.translator.admin import load, model_report, models, overview, process, upstreams
from interlingua.translator.admin import page as dashboard
from interlingua.translator.admin.handler import (
    MetricsPage,
    Page,
    QueryPage,
    answer,
    document,
    metrics_answer,
    plain_json,
)
from interlingua.translator.admin.overview import ByListener, ReadinessWatch
from interlingua.translator.admin.sources import ReportSource, Sources
from interlingua.translator.admin.view import Dashboard, view
from interlingua.translator.dashboard import assets, traffic
from interlingua.translator.dashboard.board import Board
from interlingua.translator.dashboard.events import Live
from interlingua.translator.dashboard.history import History
from interlingua.translator.dashboard.traffic import Traffic
from interlingua.translator.serving import request_metrics
from interlingua.translator.serving.operations import Service

EMPTY_REPORTS: Mapping[str, Any] = {
    "routes": [],
    "mirror": {"different": False, "mirrors": []},
    "errors": {"errors": []},
}
"""Those of a server without routes and mirrors, and without a failure."""


def add_sources(
    sources: Sources,
    service: Service,
    upstream_servers: Mapping[str, Upstream],
    by_listener: ByListener,
    loads: Sequence[ListenerLoad],
    cache: ResponseCache | None,
) -> None:
    build = process.build(service.metadata.version)
    utilization = process.CpuUtilization()
    sources.metrics += [
        partial(models.families, service.catalog),
        lambda: request_metrics.families(list(zip(service.listeners, by_listener, strict=False))),
        lambda: load.families(list(zip(service.listeners, loads, strict=False))),
        partial(upstreams.families, upstream_servers),
        partial(overview.families, service),
        lambda: (build, *process.families(), *utilization.families()),
    ]
    if cache is not None:
        sources.metrics.append(partial(process.cache_families, cache))
    sources.reports |= {
        "server": partial(overview.overview, service, by_listener),
        "models": partial(model_report.report, service.catalog),
        "upstreams": partial(upstreams.report, upstream_servers),
        "errors": lambda: {"errors": service.access.failures()},
    }
    sources.parts |= {
        "traffic": partial(traffic.collect, service.catalog, upstream_servers, by_listener),
        "errors": service.access.failures,
    }


@dataclass(slots=True)
class Site:
    """All pages. ``close`` it after the last request."""

    service: Service
    sources: Sources
    watch: ReadinessWatch
    configuration: Callable[[], Awaitable[Any]] | None = None
    history: History = field(init=False)
    live: Live = field(init=False)
    metrics: MetricsPage = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = MetricsPage(self._metrics)
        self.history = History(self._traffic)
        self.live = Live(self.history, Board(self._everything))

    def pages(self) -> Mapping[str, Page | QueryPage]:
        """By path. ``/health/live`` and ``/events`` are the listener's own."""
        pages: dict[str, Page | QueryPage] = {
            **assets.PAGES,
            "/plain": self._dashboard,
            "/view": self._view_in_json,
            "/history": QueryPage(self._history),
            "/health/ready": self._ready,
            "/metrics": self.metrics,
        }
        if self.configuration is not None:
            pages["/config"] = partial(_report, self.configuration)
        for name, source in self._reports().items():
            pages[f"/{name}"] = partial(_report, source)
        return pages

    def _reports(self) -> Mapping[str, ReportSource]:
        """Every report."""
        empty = {name: lambda value=value: value for name, value in EMPTY_REPORTS.items()}
        return {**empty, **self.sources.reports}

    async def close(self) -> None:
        """Stop querying upstreams, and sampling."""
        await self.history.close()
        await self.watch.close()

    async def _traffic(self) -> Traffic:
        found: Traffic = await self.sources.part("traffic")
        return found

    async def _everything(self) -> Mapping[str, Any]:
        reports = {name: await _read(source) for name, source in self._reports().items()}
        return {**reports, "ready": await self.watch.look()}

    async def _history(self, query: str) -> HttpAnswer:
        return document(self.history.page(query))

    async def _ready(self) -> HttpAnswer:
        found = await overview.readiness(self.service)
        return document(found, 200 if found["ready"] else 503)

    async def _dashboard(self) -> HttpAnswer:
        body = await asyncio.to_thread(dashboard.page, await self._view())
        return answer(200, "text/html; charset=utf-8", body, dashboard.HEADERS)

    async def _view_in_json(self) -> HttpAnswer:
        return await asyncio.to_thread(document, await self._view())

    async def _view(self) -> Dashboard:
        reports = {name: await _read(source) for name, source in self._reports().items()}
        # a private copy as plain JSON values
        plain = orjson.loads(plain_json(reports))
        ready, metrics = await self.watch.look(), self.service.trends.metrics()
        return await asyncio.to_thread(view, ready, metrics, plain)

    async def _metrics(self, openmetrics: bool) -> HttpAnswer:
        families = []
        for source in self.sources.metrics:
            for family in source():
                families.append(family)
                await asyncio.sleep(0)
        return await asyncio.to_thread(metrics_answer, families, openmetrics)


async def _report(source: ReportSource) -> HttpAnswer:
    return document(await _read(source))


async def _read(source: ReportSource) -> Any:
    value: Any | Awaitable[Any] = source()
    return await value if isawaitable(value) else value
