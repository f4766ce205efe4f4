"""The pages of the admin address of a server of several processes. The supervisor answers them, so that
probes have an answer whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from interlingua.protocols.wire import HttpAnswer
from interlingua.translator.admin import process
from interlingua.translator.admin.handler import Page, answer, document
from interlingua.translator.admin.metrics import CONTENT_TYPE, Family, Sample, exposition
from interlingua.translator.workers.merged import merged
from interlingua.translator.workers.supervisor import Supervisor

_REPORTS = ("server", "models", "upstreams", "routes", "mirror", "tap")


class SupervisorSite:
    """The pages about ``supervisor``."""

    def __init__(self, supervisor: Supervisor, stalled_after_secs: float) -> None:
        self._supervisor = supervisor
        self._stalled_after_secs = stalled_after_secs

    def pages(self) -> Mapping[str, Page]:
        """By path."""
        reports = {f"/{name}": partial(self._report, name) for name in _REPORTS}
        return {
            "/": self._processes,
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/metrics": self._metrics,
            **reports,
        }

    async def _live(self) -> HttpAnswer:
        """Live while one front end turns, or starts."""
        silent = [each.silent_secs for each in self._supervisor.front_ends]
        stalled = min(silent, default=0.0)
        live = stalled < self._stalled_after_secs
        found = {"live": live, "stalled_secs": round(stalled, 1)}
        return document(found, 200 if live else 503)

    async def _ready(self) -> HttpAnswer:
        """Ready if the runtime process is there and a front end is ready."""
        replies = await self._ask("ready")
        ready = [each for each in replies.values() if each["ready"]]
        if ready:
            return document(ready[0])
        reasons = [reason for each in replies.values() for reason in each["reasons"]]
        found = {"ready": False, "reasons": list(dict.fromkeys(reasons)) or ["no front end answers"]}
        return document(found, 503)

    async def _processes(self) -> HttpAnswer:
        return document(
            {"processes": self._supervisor.report(), "reports": [f"/{name}" for name in _REPORTS]}
        )

    async def _report(self, name: str) -> HttpAnswer:
        """The report of every process by its name."""
        asked = {"runtime": self._supervisor.runtime} if name == "models" else {}
        members = {**asked, **{each.name: each for each in self._supervisor.front_ends}}
        replies = await asyncio.gather(*(each.ask("report", name) for each in members.values()))
        return document(dict(zip(members, replies, strict=True)))

    async def _metrics(self) -> HttpAnswer:
        supervisor = self._supervisor
        members = [*supervisor.front_ends, supervisor.runtime]
        replies = await asyncio.gather(*(each.ask("metrics") for each in members))
        families: dict[str, Any] = {"supervisor": [*process.families(), self._up()]}
        for member, found in zip(members, replies, strict=True):
            families[member.name] = found or ()
        return answer(200, CONTENT_TYPE, await asyncio.to_thread(exposition, list(merged(families))))

    def _up(self) -> Family:
        members = [*self._supervisor.front_ends, self._supervisor.runtime]
        text = "Whether a process of the server runs and is ready."
        samples = [Sample(each.ready.is_set(), {"process": each.name}) for each in members]
        return Family("interlingua_process_up", "gauge", text, samples)

    async def _ask(self, kind: str) -> dict[str, Any]:
        """The replies of the front ends that answer, by name."""
        front_ends = self._supervisor.front_ends
        replies = await asyncio.gather(*(each.ask(kind) for each in front_ends))
        return {
            each.name: reply for each, reply in zip(front_ends, replies, strict=True) if reply is not None
        }
