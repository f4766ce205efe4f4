"""Who has something to tell an operator: functions that are asked when somebody looks.

A part of the program that counts something adds itself where it is put together (``translator.assembly``).
Sources are asked on the event loop and need no locks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from interlingua.translator.admin.metrics import Family

MetricSource = Callable[[], Iterable[Family]]
ReportSource = Callable[[], Any | Awaitable[Any]]
"""Gives what ``orjson`` can write: dictionaries, lists, text, numbers, dataclasses; or a coroutine that does,
and waits for nobody elsewhere."""


@dataclass(slots=True)
class Sources:
    """Sources of ``/metrics`` and, by the name of their path (``routes``, ``mirror``), of reports in JSON."""

    metrics: list[MetricSource] = field(default_factory=list)
    reports: dict[str, ReportSource] = field(default_factory=dict)
