"""Metrics of mirrors. Every sample has the labels ``mirror``, its name, and ``to``, the model that receives
the copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from interlingua.translator.admin.metrics import Family, Kind, Sample, latency_samples
from interlingua.translator.mirror.report import MirrorReport

_Samples = Iterator[tuple[float, Mapping[str, str]]]


def families(mirrors: Iterable[MirrorReport]) -> Iterator[Family]:
    """The metrics of ``mirrors``; none if there are no mirrors."""
    reports = list(mirrors)
    if not reports:
        return
    for name, kind, help_, samples_of in _FAMILIES:
        samples = [
            Sample(value, {"mirror": report.name, "to": report.to, **labels})
            for report in reports
            for value, labels in samples_of(report)
        ]
        if samples:
            yield Family(f"interlingua_mirror_{name}", kind, help_, samples)
    yield Family(
        "interlingua_mirror_latency_seconds",
        "histogram",
        "Latency of the primary model and of the mirror model.",
        [
            sample
            for report in reports
            for side, latencies in (("primary", report.counts.primary), ("mirror", report.counts.mirror))
            for sample in latency_samples(latencies, {"mirror": report.name, "to": report.to, "side": side})
        ],
    )


def _results(report: MirrorReport) -> _Samples:
    yield report.counts.equal, {"result": "equal"}
    yield report.counts.different, {"result": "different"}


def _cut(report: MirrorReport) -> _Samples:
    yield report.counts.cut, {}


def _dropped(report: MirrorReport) -> _Samples:
    return ((count, {"reason": reason}) for reason, count in report.dropped.items())


def _failures(report: MirrorReport) -> _Samples:
    return ((failure.count, {"kind": kind}) for kind, failure in report.counts.failures.items())


def _compared(report: MirrorReport) -> _Samples:
    return ((output.compared, {"output": name}) for name, output in report.counts.outputs.items())


def _faults(report: MirrorReport) -> _Samples:
    for name, output in report.counts.outputs.items():
        for fault, count in output.faults.items():
            yield count, {"output": name, "fault": fault}


def _absolute(report: MirrorReport) -> _Samples:
    return ((output.max_absolute, {"output": name}) for name, output in report.counts.outputs.items())


def _relative(report: MirrorReport) -> _Samples:
    return ((output.max_relative, {"output": name}) for name, output in report.counts.outputs.items())


def _kept(report: MirrorReport) -> _Samples:
    return ((count, {"kind": kind}) for kind, count in report.counts.kept.items())


def _held(report: MirrorReport) -> _Samples:
    yield report.held, {}


def _held_bytes(report: MirrorReport) -> _Samples:
    yield report.held_bytes, {}


_FAMILIES: tuple[tuple[str, Kind, str, Callable[[MirrorReport], _Samples]], ...] = (
    ("requests_total", "counter", "Compared requests, by result.", _results),
    ("cut_total", "counter", "Streams compared only in their first responses.", _cut),
    ("dropped_total", "counter", "Requests not copied or not compared, by reason.", _dropped),
    ("failures_total", "counter", "Answers that differ other than in an output, by kind.", _failures),
    ("outputs_total", "counter", "Outputs compared.", _compared),
    ("output_differences_total", "counter", "Outputs that differ, by fault.", _faults),
    ("output_max_absolute_error", "gauge", "The largest absolute error so far.", _absolute),
    ("output_max_relative_error", "gauge", "The largest relative error so far.", _relative),
    ("kept_total", "counter", "Pairs of answers recorded.", _kept),
    ("queue_requests", "gauge", "Copies waiting or in flight.", _held),
    ("queue_bytes", "gauge", "Bytes of copies waiting or in flight.", _held_bytes),
)
"""Name, kind, help, and the samples of one mirror."""
