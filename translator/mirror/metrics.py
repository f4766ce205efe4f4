"""Metrics of mirrors. Every sample has the labels ``mirror``, its name, and ``to``, the model that receives
the copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from interlingua.translator.admin.metrics import Family, Kind, Sample, latency_samples
from interlingua.translator.mirror.report import MirrorReport

_Samples = Iterable[tuple[float, Mapping[str, str]]]


def families(mirrors: Iterable[MirrorReport]) -> Iterator[Family]:
    reports = list(mirrors)
    if not reports:
        return
    kinds: tuple[tuple[Kind, str, _Rows], ...] = (("counter", "_total", _COUNTERS), ("gauge", "", _GAUGES))
    for kind, suffix, rows in kinds:
        for name, text, samples_of in rows:
            samples = [
                Sample(value, {"mirror": report.name, "to": report.to, **labels})
                for report in reports
                for value, labels in samples_of(report)
            ]
            if samples:
                yield Family(f"interlingua_mirror_{name}{suffix}", kind, text, samples)
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


def _by_label(label: str, values: Mapping[str, float]) -> _Samples:
    return ((value, {label: name}) for name, value in values.items())


def _by_output(report: MirrorReport, field: str) -> _Samples:
    return ((getattr(output, field), {"output": name}) for name, output in report.counts.outputs.items())


def _failures(report: MirrorReport) -> _Samples:
    return _by_label("kind", {kind: failure.count for kind, failure in report.counts.failures.items()})


def _faults(report: MirrorReport) -> _Samples:
    for name, output in report.counts.outputs.items():
        for fault, count in output.faults.items():
            yield count, {"output": name, "fault": fault}


def _results(report: MirrorReport) -> _Samples:
    return _by_label("result", {"equal": report.counts.equal, "different": report.counts.different})


_Rows = tuple[tuple[str, str, Callable[[MirrorReport], _Samples]], ...]
"""Name, help, and the samples of one mirror."""

_COUNTERS: _Rows = (
    ("requests", "Compared requests, by result.", _results),
    ("cut", "Streams compared only in their first responses.", lambda it: [(it.counts.cut, {})]),
    (
        "dropped",
        "Requests not copied or not compared, by reason.",
        lambda it: _by_label("reason", it.dropped),
    ),
    ("failures", "Answers that differ other than in an output, by kind.", _failures),
    ("outputs", "Outputs compared.", lambda it: _by_output(it, "compared")),
    ("output_differences", "Outputs that differ, by fault.", _faults),
    ("kept", "Pairs of answers recorded.", lambda it: _by_label("kind", it.counts.kept)),
)
_GAUGES: _Rows = (
    (
        "output_max_absolute_error",
        "The largest absolute error so far.",
        lambda it: _by_output(it, "max_absolute"),
    ),
    (
        "output_max_relative_error",
        "The largest relative error so far.",
        lambda it: _by_output(it, "max_relative"),
    ),
    ("queue_requests", "Copies waiting or in flight.", lambda it: [(it.held, {})]),
    ("queue_bytes", "Bytes of copies waiting or in flight.", lambda it: [(it.held_bytes, {})]),
)
