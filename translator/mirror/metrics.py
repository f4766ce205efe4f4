"""What mirrors have found, as metrics. Every sample is labelled with ``mirror``, a name, and ``to``, the
model that copies go to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from interlingua.translator.admin.metrics import Family, Kind, Sample, latency_samples
from interlingua.translator.mirror.report import MirrorReport

_Told = Iterator[tuple[float, Mapping[str, str]]]


def families(mirrors: Iterable[MirrorReport]) -> Iterator[Family]:
    """The metrics of all ``mirrors``; none where there are none."""
    reports = list(mirrors)
    if not reports:
        return
    for name, kind, help_, tell in _FAMILIES:
        samples = [
            Sample(value, {"mirror": report.name, "to": report.to, **labels})
            for report in reports
            for value, labels in tell(report)
        ]
        if samples:
            yield Family(f"interlingua_mirror_{name}", kind, help_, samples)
    yield Family(
        "interlingua_mirror_latency_seconds",
        "histogram",
        "How long answers took of the model that callers got theirs from, and of the mirror's.",
        [
            sample
            for report in reports
            for side, latencies in (("primary", report.counts.primary), ("mirror", report.counts.mirror))
            for sample in latency_samples(latencies, {"mirror": report.name, "to": report.to, "side": side})
        ],
    )


def _results(report: MirrorReport) -> _Told:
    yield report.counts.equal, {"result": "equal"}
    yield report.counts.different, {"result": "different"}


def _cut(report: MirrorReport) -> _Told:
    yield report.counts.cut, {}


def _dropped(report: MirrorReport) -> _Told:
    return ((count, {"reason": reason}) for reason, count in report.dropped.items())


def _failures(report: MirrorReport) -> _Told:
    return ((failure.count, {"kind": kind}) for kind, failure in report.counts.failures.items())


def _compared(report: MirrorReport) -> _Told:
    return ((output.compared, {"output": name}) for name, output in report.counts.outputs.items())


def _faults(report: MirrorReport) -> _Told:
    for name, output in report.counts.outputs.items():
        for fault, count in output.faults.items():
            yield count, {"output": name, "fault": fault}


def _absolute(report: MirrorReport) -> _Told:
    return ((output.max_absolute, {"output": name}) for name, output in report.counts.outputs.items())


def _relative(report: MirrorReport) -> _Told:
    return ((output.max_relative, {"output": name}) for name, output in report.counts.outputs.items())


def _kept(report: MirrorReport) -> _Told:
    return ((count, {"kind": kind}) for kind, count in report.counts.kept.items())


def _held(report: MirrorReport) -> _Told:
    yield report.held, {}


def _held_bytes(report: MirrorReport) -> _Told:
    yield report.held_bytes, {}


_FAMILIES: tuple[tuple[str, Kind, str, Callable[[MirrorReport], _Told]], ...] = (
    ("requests_total", "counter", "Requests that were answered twice, by whether equally.", _results),
    ("cut_total", "counter", "Streams of which the first responses alone were compared.", _cut),
    ("dropped_total", "counter", "Requests that were not copied or not compared, by why.", _dropped),
    ("failures_total", "counter", "Answers that differ as a whole, by how.", _failures),
    ("outputs_total", "counter", "Outputs that were compared.", _compared),
    ("output_differences_total", "counter", "Outputs that differ, by how.", _faults),
    ("output_max_absolute_error", "gauge", "The largest absolute error so far.", _absolute),
    ("output_max_relative_error", "gauge", "The largest relative error so far.", _relative),
    ("kept_total", "counter", "Pairs of answers that were written down.", _kept),
    ("queue_requests", "gauge", "Copies that wait or are under way.", _held),
    ("queue_bytes", "gauge", "Bytes held for these copies.", _held_bytes),
)
"""Name, kind, help, and what there is to tell of one mirror."""
