"""What processes report, by kind and name: how several reports become that of one server, and what stays of
one when its process has exited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

from interlingua.translator import mirror
from interlingua.translator.admin import merging, model_report, overview, ray, upstreams
from interlingua.translator.admin.metrics import Family
from interlingua.translator.dashboard import traffic
from interlingua.translator.serving.access_log import KEPT_FAILURES
from interlingua.translator.serving.routing import report as routes
from interlingua.translator.serving.totals import COUNTS
from interlingua.translator.workers.merged import merged

Kind = tuple[str, str]
"""``report`` and the name of a page, ``count`` and a name in ``totals.COUNTS``, or :data:`METRICS`."""

METRICS: Kind = ("metrics", "")
TRAFFIC: Kind = ("report", "traffic")


class Merging(NamedTuple):
    """``merge`` adds the second report to the first, which belongs to it and began as ``empty``.
    ``counted`` is the part of a report that outlives its process. ``render`` makes the values for JSON."""

    empty: Callable[[], Any]
    merge: Callable[[Any, Any], Any]
    counted: Callable[[Any], Any]
    render: Callable[[Any], Any] = lambda report: report


def _plain(rules: merging.Rules, gauges: frozenset[str] = frozenset()) -> Merging:
    return Merging(lambda: None, _merged_by(rules), partial(merging.without, gauges=gauges))


def _merged_by(rules: merging.Rules) -> Callable[[Any, Any], Any]:
    return _unless_first(lambda these, others: merging.merged(these, others, rules))


def _unless_first(merge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda these, others: others if these is None else merge(these, others)


def _counters(families: Sequence[Family]) -> list[Family]:
    return [each for each in families if each.kind != "gauge" and not each.name.startswith("process_")]


def _latest(these: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted([*these, *others], key=lambda each: -each["time"])[:KEPT_FAILURES]


REPORTS: Mapping[str, Merging] = {
    "server": _plain(overview.MERGING, overview.GAUGES),
    "models": Merging(dict, model_report.merge, model_report.without_process, model_report.render),
    "upstreams": Merging(lambda: None, _unless_first(upstreams.merge), upstreams.without_process),
    "routes": _plain(routes.MERGING),
    "mirror": Merging(list, mirror.merge, mirror.without_process, mirror.reports),
    "tap": _plain({}, frozenset({"queued_bytes"})),
    "ray": Merging(lambda: None, ray.merge, ray.without_process),
    "errors": Merging(list, _latest, lambda errors: errors, lambda errors: {"errors": errors}),
}
"""By page."""

_MERGING: Mapping[Kind, Merging] = {
    **{("report", name): each for name, each in REPORTS.items()},
    **{
        ("count", name): Merging(each.empty, each.merge, lambda counts: counts)
        for name, each in COUNTS.items()
    },
    TRAFFIC: Merging(traffic.Traffic, traffic.merge, traffic.counted),
    METRICS: Merging(list, lambda these, others: list(merged({"": these, " ": others})), _counters),
}


def merge(kind: Kind, reports: Iterable[Any]) -> Any:
    """The report of the server from those of its processes, which stay as they are."""
    merging = _MERGING[kind]
    return reduce(merging.merge, reports, merging.empty())


class LastReports:
    """The last reports of a process and of those that it has replaced, so that counters never decrease: not
    when it exits, and not while it is stopped and does not answer."""

    def __init__(self) -> None:
        self._last: dict[Kind, Any] = {}
        self._counted: dict[Kind, Any] = {}

    def take(self, kind: Kind, report: Any) -> list[Any]:
        """What the process adds to ``kind``, now that it has answered ``report`` (None: it has not)."""
        if report is None:
            report = self._last.get(kind)
        else:
            self._last[kind] = report
        return [*([] if report is None else [report]), *self.of_exited(kind)]

    def of_exited(self, kind: Kind) -> list[Any]:
        """What the exited ones add to ``kind``."""
        return [self._counted[kind]] if kind in self._counted else []

    def exited(self) -> None:
        """The process has exited: what it counted stays."""
        last, self._last = self._last, {}
        for kind, report in last.items():
            counted = _MERGING[kind].counted(report)
            self._counted[kind] = merge(kind, [counted, *self.of_exited(kind)])
