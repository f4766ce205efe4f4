"""What traffic in production does that the same request again and again does not: the parts, what is
measured of them, and what it may cost.

A part changes the requests, the configuration of the daemon, or the answers of its upstream. ``PLACE`` is
another number in each request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.bridging.sender import PLACE

TOKEN = "0123456789abcdef" * 4
SHAPES = 40
"""How many shapes alternate: from one number up."""


@dataclass(frozen=True)
class Variant:
    """Its parts together may cost ``ratio`` times the same request, or ``more_us`` microseconds more; None:
    no limit of that kind. ``local`` is the ratio for a model that the daemon runs itself, None where that is
    not measured."""

    name: str
    parts: frozenset[str]
    ratio: float | None
    more_us: float | None = None
    local: float | None = None


TRACE, ACCESS, ROUTE = "trace headers", "access_log: all", "unrelated route"
_ALL = ("id", TRACE, ACCESS, "token", "tracing", ROUTE)

SAME = Variant("same", frozenset(), None)
EVERYTHING = Variant("everything", frozenset(_ALL), 2.2, 70, 2.2)
VARIANTS = (
    Variant("unique id", frozenset({"id"}), 1.4, 25, 1.3),
    Variant("unique trace headers", frozenset({TRACE}), 1.4, 25, 1.3),
    Variant("id and trace headers", frozenset({"id", TRACE}), 1.8, 45, 1.6),
    Variant("access_log: all", frozenset({ACCESS}), 1.5, 30, 1.4),
    Variant("token", frozenset({"token"}), 1.4, 25, 1.3),
    Variant("tracing 1 %", frozenset({"tracing"}), 1.4, 25, 1.3),
    Variant("unrelated route", frozenset({ROUTE}), 1.4, 25, 1.3),
    Variant("split 90/10", frozenset({"split"}), 1.4, 25),
    Variant("unique answer headers", frozenset({"answers"}), 1.4, 25),
    Variant("other shapes", frozenset({"shapes"}), 2.8),
    Variant("JSON tensors", frozenset({"JSON"}), None),
    EVERYTHING,
)

HEADERS: Mapping[str, Mapping[str, str]] = {
    TRACE: {"x-request-id": PLACE, "traceparent": f"00-{PLACE}{PLACE}-{PLACE}-00"},
    "token": {"authorization": f"Bearer {TOKEN}"},
}
"""The headers of requests; the caller of the trace does not sample it."""
