"""Sources of metrics and reports: functions called on each request to the admin address.

``translator.assembly`` registers them. They run on the event loop and need no locks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from interlingua.translator.admin.metrics import Family

MetricSource = Callable[[], Iterable[Family]]
ReportSource = Callable[[], Any | Awaitable[Any]]
"""Returns a value that ``orjson`` can serialize (dictionaries, lists, text, numbers, dataclasses), or a
coroutine that returns one without network I/O."""


@dataclass(slots=True)
class Sources:
    """Sources of ``/metrics`` and, by the name of their path (``routes``, ``mirror``), of reports in JSON.
    Where JSON has less than it takes to merge the reports of several processes, ``parts`` has a source of
    it."""

    metrics: list[MetricSource] = field(default_factory=list)
    reports: dict[str, ReportSource] = field(default_factory=dict)
    parts: dict[str, ReportSource] = field(default_factory=dict)

    def add(self, name: str, metrics: MetricSource, report: ReportSource) -> None:
        self.metrics.append(metrics)
        self.reports[name] = report

    async def part(self, name: str) -> Any:
        """What this process adds to the report ``name``; None if it has no such report."""
        source = self.parts.get(name) or self.reports.get(name)
        if source is None:
            return None
        found = source()
        return await found if isawaitable(found) else found
