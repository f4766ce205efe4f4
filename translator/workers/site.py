"""The pages of the admin address of a server of several processes. The supervisor answers them, so that
probes have an answer whatever the others do."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from interlingua.protocols.wire import HttpAnswer, parts_of
from interlingua.schemas import LogSettings, Operation
from interlingua.translator.admin import page as dashboard
from interlingua.translator.admin import process
from interlingua.translator.admin.handler import (
    AdminAction,
    MetricsPage,
    Page,
    QueryPage,
    answer,
    document,
    metrics_answer,
    plain,
    plain_json,
)
from interlingua.translator.admin.loading import LOADING_PAGES
from interlingua.translator.admin.log_level import log_level_action
from interlingua.translator.admin.metrics import END, Family, Sample
from interlingua.translator.admin.site import EMPTY_REPORTS
from interlingua.translator.admin.view import Dashboard, view
from interlingua.translator.config.options import Config
from interlingua.translator.dashboard import assets
from interlingua.translator.dashboard.board import Board
from interlingua.translator.dashboard.events import EventPage, Live, Viewers
from interlingua.translator.dashboard.history import History
from interlingua.translator.dashboard.traffic import Traffic
from interlingua.translator.dashboard.trial import TIMEOUT_SECS, Trial, trial_action
from interlingua.translator.serving.changes import StateChange
from interlingua.translator.workers.merged import merged
from interlingua.translator.workers.reports import METRICS, REPORTS, TRAFFIC, Kind, merge
from interlingua.translator.workers.supervisor import Supervisor

_SILENT = "no front end answers"


class SupervisorSite:
    """The pages about ``supervisor``, the server of ``config``."""

    def __init__(self, supervisor: Supervisor, config: Config) -> None:
        self._supervisor = supervisor
        self._started = time.monotonic()
        self.history = History(self._traffic)
        self.viewers = Viewers()
        self._live_state = Live(self.history, Board(self._everything))
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Show the server as ``config`` has it."""
        self._stalled_after_secs = config.server.stalled_after_secs
        absent = {"tap"} if config.tap is None else set()
        if not any(model.backend == "ray" for model in config.models.values()):
            absent.add("ray")
        self._names = [name for name in REPORTS if name not in absent]

    def loading_pages(self) -> Mapping[str, Page]:
        """Until all processes have started, by path."""
        return {"/health/live": self._live, "/processes": self._processes, **LOADING_PAGES}

    def pages(self) -> Mapping[str, Page | QueryPage]:
        """By path."""
        return {
            **assets.PAGES,
            "/plain": self._dashboard,
            "/view": self._view_in_json,
            "/history": QueryPage(self._history),
            "/events": QueryPage(EventPage(self._live_state.look, self.viewers).write),
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/metrics": MetricsPage(self._metrics),
            **{f"/{name}": partial(self._report_page, name) for name in self._names},
            "/processes": self._processes,
        }

    def actions(self) -> Mapping[str, AdminAction]:
        """What operators may request, by path."""
        return {"/logging": log_level_action(self._change_log), "/try": trial_action(self._try)}

    async def _try(self, trial: Trial) -> dict[str, Any]:
        """The answer of a front end."""
        for each in self._supervisor.front_ends:
            found = await each.carry_out("try", trial, TIMEOUT_SECS)
            if found is not None:
                return dict(found)
        return {"error": {"code": "UNAVAILABLE", "message": _SILENT}}

    async def _change_log(self, settings: LogSettings) -> None:
        await self._supervisor.share(None, StateChange(Operation.LOG_SETTINGS, "", settings, ""))

    async def _live(self) -> HttpAnswer:
        """Live while one front end turns, or starts."""
        stalled, live = self._stalled_secs(), self.live()
        found = {"live": live, "stalled_secs": round(stalled, 1)}
        return document(found, 200 if live else 503)

    def live(self) -> bool:
        """Whether a front end turns, or starts."""
        return self._stalled_secs() < self._stalled_after_secs

    def _stalled_secs(self) -> float:
        """How long no front end has turned."""
        return min((each.silent_secs for each in self._supervisor.front_ends), default=0.0)

    async def _ready(self) -> HttpAnswer:
        found = await self.readiness()
        return document(found, 200 if found["ready"] else 503)

    async def readiness(self) -> dict[str, Any]:
        """Ready if the runtime process is there and a front end is ready."""
        front_ends = self._supervisor.front_ends
        replies = await asyncio.gather(*(each.request("ready") for each in front_ends))
        answered = [each for each in replies if each is not None]
        ready = [each for each in answered if each["ready"]]
        if ready:
            return dict(ready[0])
        reasons = [reason for each in answered for reason in each["reasons"]]
        return {"ready": False, "reasons": list(dict.fromkeys(reasons)) or [_SILENT]}

    async def _processes(self) -> HttpAnswer:
        return document(self._processes_report())

    def _processes_report(self) -> dict[str, Any]:
        supervisor = {
            "pid": os.getpid(),
            "role": "supervisor",
            "ready": True,
            "uptime_secs": round(time.monotonic() - self._started, 1),
            "restarts": 0,
            "answer_ms": 0.0,
        }
        return {"supervisor": supervisor, **self._supervisor.report()}

    async def _report_page(self, name: str) -> HttpAnswer:
        return document(await self._report(name))

    async def _report(self, name: str) -> Any:
        """The report of all processes, as one has it."""
        found = await self._merged(("report", name))
        if found is None or found == []:
            return EMPTY_REPORTS.get(name, {})
        return REPORTS[name].render(found)

    async def _merged(self, kind: Kind) -> Any:
        return await asyncio.to_thread(merge, kind, await self._supervisor.collect(kind))

    async def _dashboard(self) -> HttpAnswer:
        found = await self._view()
        if found is None:
            return plain(503, _SILENT, (("retry-after", "1"),))
        body = await asyncio.to_thread(dashboard.page, found)
        return answer(200, "text/html; charset=utf-8", body, dashboard.HEADERS)

    async def _view_in_json(self) -> HttpAnswer:
        found = await self._view()
        if found is None:
            return plain(503, _SILENT, (("retry-after", "1"),))
        return await asyncio.to_thread(document, found)

    async def _history(self, query: str) -> HttpAnswer:
        return document(self.history.page(query))

    async def _traffic(self) -> Traffic:
        found: Traffic = await self._merged(TRAFFIC)
        return found

    async def _everything(self) -> Mapping[str, Any]:
        """All reports, and the readiness."""
        ready, *found = await asyncio.gather(self.readiness(), *map(self._report, self._names))
        reports = dict(zip(self._names, found, strict=True))
        return {**reports, "processes": self._processes_report(), "ready": ready}

    async def _view(self) -> Dashboard | None:
        """None until a front end has answered."""
        trends, everything = await asyncio.gather(self._merged(("count", "trends")), self._everything())
        reports = dict(everything)
        ready = reports.pop("ready")
        if not reports["server"]:
            return None
        # as plain JSON values
        values = orjson.loads(plain_json(reports))
        return await asyncio.to_thread(view, ready, trends.metrics(), values)

    async def _metrics(self, openmetrics: bool) -> HttpAnswer:
        families: dict[str, Any] = {"supervisor": [*process.families(), self._up()]}
        processes = self._supervisor.processes
        found = await asyncio.gather(*(each.collect(METRICS) for each in processes))
        for each, reports in zip(processes, found, strict=True):
            families[each.name] = [family for report in reports for family in report]
        page = await asyncio.to_thread(metrics_answer, list(merged(families)), openmetrics)
        if openmetrics:
            page = replace(page, parts=(*parts_of(page), END))
        return page

    def _up(self) -> Family:
        text = "Whether a process of the server runs and is ready."
        samples = [Sample(each.ready.is_set(), {"process": each.name}) for each in self._supervisor.processes]
        return Family("interlingua_process_up", "gauge", text, samples)
