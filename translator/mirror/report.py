"""The results of a mirror: counts, the largest errors by output, and the latencies of both sides."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from interlingua.schemas import Latencies
from interlingua.translator.admin.quantiles import quantile_ms
from interlingua.translator.diff import TensorDiff
from interlingua.translator.mirror.comparison import Comparison
from interlingua.translator.mirror.excerpt import Excerpt
from interlingua.translator.recording.record import Record

_MOST_OUTPUTS = 256
"""Outputs counted by name. A model has few, but a server may return any name."""

_OTHERS = "(others)"

DIFFERENCE_BOUNDS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
"""The upper bounds of the ranges of differences, ascending; the last range is unbounded."""

_WORDS = 500
"""Characters of a message to keep."""


class Dropped(enum.Enum):
    """Why a request was not copied, or its copy not compared; reports contain ``value``."""

    QUEUE = "queue"
    """The queue was full."""
    SEQUENCE = "sequence"
    """An earlier request of its sequence was not copied, or failed on one side only."""
    SAME = "same_model"
    """The mirror model itself had answered it."""
    CANCELLED = "cancelled"
    """Its caller disconnected: there is no answer to compare with."""
    SHUTDOWN = "shutdown"
    ERROR = "error"
    """An internal error; the log has it."""


@dataclass(slots=True)
class Example:
    """A difference, found in comparison ``number`` of a mirror, of the request with ``request_id``; the other
    fields are those of ``TensorDiff``. ``answers`` are the caller's and the mirror's, None for one without
    the output; of the worst example only."""

    request_id: str
    number: int
    response: int
    index: tuple[int, ...] | None
    byte: int | None
    expected: str
    actual: str
    max_absolute: float
    answers: tuple[Excerpt | None, Excerpt | None] = (None, None)

    def as_dict(self) -> dict[str, Any]:
        """Without ``answers``."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "answers"}


_OF_THE_DIFF = attrgetter("response", "index", "byte", "expected", "actual", "max_absolute")


@dataclass(slots=True)
class OutputReport:
    """One output over all requests: ``compared`` comparisons, ``different`` of them unequal, by ``faults``
    (values, shape, datatype, missing, extra). The errors are maxima over all answers, equal ones included;
    ``first`` is the first difference, ``worst`` the one with the largest error."""

    compared: int = 0
    different: int = 0
    elements_different: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    nonfinite: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    first: Example | None = None
    worst: Example | None = None

    def add(self, diff: TensorDiff, request_id: str, number: int) -> None:
        self.compared += 1
        self.max_absolute = max(self.max_absolute, diff.max_absolute)
        self.max_relative = max(self.max_relative, diff.max_relative)
        if diff.fault is None:
            return
        self.different += 1
        self.elements_different += diff.different
        self.nonfinite += diff.nonfinite
        self.faults[diff.fault.value] += 1
        if self.worst is not None and diff.max_absolute <= self.worst.max_absolute:
            return
        example = Example(request_id[:_WORDS], number, *_OF_THE_DIFF(diff))
        self.first = self.first or example
        left, right = (None if side is None else Excerpt.of(side) for side in diff.sides)
        self.worst = replace(example, answers=(left, right))

    def as_dict(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["first"] = None if self.first is None else self.first.as_dict()
        if (worst := self.worst) is not None:
            sides = zip(("expected", "actual"), worst.answers, strict=True)
            answers = {name: None if side is None else side.as_dict() for name, side in sides}
            found["worst"] = {**worst.as_dict(), "answers": answers}
        return found

    def merge(self, later: OutputReport, before: int) -> None:
        """Add later comparisons; ``before`` precede them."""
        self.compared += later.compared
        self.max_absolute = max(self.max_absolute, later.max_absolute)
        self.max_relative = max(self.max_relative, later.max_relative)
        if later.first is None or later.worst is None:
            return
        self.different += later.different
        self.elements_different += later.elements_different
        self.nonfinite += later.nonfinite
        self.faults += later.faults
        self.first = self.first or replace(later.first, number=later.first.number + before)
        if self.worst is None or later.worst.max_absolute > self.worst.max_absolute:
            self.worst = replace(later.worst, number=later.worst.number + before)


@dataclass(slots=True)
class FailureReport:
    """How often an answer differed other than in an output, and the last message."""

    count: int = 0
    last: str = ""


@dataclass(slots=True)
class Counts:
    """Results of ``compared`` requests: ``equal`` or ``different``. ``cut`` of them are streams too long to
    keep, compared in their first responses. ``failures`` are by kind, as in ``AnswerDiff``; ``kept`` counts
    recorded pairs. ``differences`` counts answers without such failures by their largest absolute error, in
    the ranges of ``DIFFERENCE_BOUNDS``. ``primary`` and ``mirror`` are the latencies of both sides, without
    failures."""

    compared: int = 0
    equal: int = 0
    different: int = 0
    cut: int = 0
    failures: dict[str, FailureReport] = field(default_factory=dict)
    outputs: dict[str, OutputReport] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    primary: Latencies = field(default_factory=Latencies)
    mirror: Latencies = field(default_factory=Latencies)
    differences: list[int] = field(default_factory=lambda: [0] * (len(DIFFERENCE_BOUNDS) + 1))

    def add(self, record: Record, comparison: Comparison) -> None:
        diff = comparison.diff
        self.compared += 1
        self.equal += diff.equal
        self.different += not diff.equal
        self.cut += record.answer.cut
        for kind, words in diff.failures:
            self._failed(kind, 1, words[:_WORDS])
        for output in diff.outputs:
            self._output(output.name).add(output, record.request.id, self.compared)
        if not diff.failures:
            largest = max((output.max_absolute for output in diff.outputs), default=0.0)
            self.differences[bisect_left(DIFFERENCE_BOUNDS, largest)] += 1
        cut = record.answer.cut  # the primary also took time for later responses
        if record.answer.error is None and not cut:
            self.primary.add(record.answer.elapsed_ns)
        if not comparison.failed and not cut:
            self.mirror.add(comparison.elapsed_ns)
        if comparison.kept:
            self.kept[comparison.kept] += 1

    def merge(self, later: Counts) -> None:
        for kind, failure in later.failures.items():
            self._failed(kind, failure.count, failure.last)
        for name, output in later.outputs.items():
            self._output(name).merge(output, self.compared)
        self.compared += later.compared
        self.equal += later.equal
        self.different += later.different
        self.cut += later.cut
        self.kept += later.kept
        self.primary.merge(later.primary)
        self.mirror.merge(later.mirror)
        both = zip(self.differences, later.differences, strict=True)
        self.differences = [count + more for count, more in both]

    def _failed(self, kind: str, count: int, last: str) -> None:
        failure = self.failures.setdefault(kind, FailureReport())
        failure.count += count
        failure.last = last

    def _output(self, name: str) -> OutputReport:
        if name not in self.outputs and len(self.outputs) >= _MOST_OUTPUTS:
            name = _OTHERS
        return self.outputs.setdefault(name, OutputReport())


@dataclass(slots=True)
class MirrorReport:
    """Everything about a mirror. ``counts`` has the comparisons, ``dropped`` the requests without one, by
    reason. ``held`` copies of ``held_bytes`` are waiting or in flight."""

    name: str
    to: str
    percent: float
    rtol: float
    atol: float
    counts: Counts = field(default_factory=Counts)
    held: int = 0
    held_bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def count_dropped(self, why: Dropped, count: int = 1) -> None:
        if count:
            self.dropped[why.value] += count

    def merge(self, others: MirrorReport) -> None:
        """Count in what another process has compared."""
        self.counts.merge(others.counts)
        self.held += others.held
        self.held_bytes += others.held_bytes
        self.dropped += others.dropped

    def as_dict(self) -> dict[str, Any]:
        counts = self.counts
        return {
            **{name: getattr(self, name) for name in ("name", "to", "percent", "rtol", "atol")},
            **{name: getattr(counts, name) for name in ("compared", "equal", "different", "cut")},
            "held": {"requests": self.held, "bytes": self.held_bytes},
            "dropped": self.dropped,
            "failures": counts.failures,
            "outputs": {name: output.as_dict() for name, output in counts.outputs.items()},
            "kept": counts.kept,
            "differences": [
                {"up_to": bound, "count": count}
                for bound, count in zip((*DIFFERENCE_BOUNDS, None), counts.differences, strict=True)
            ],
            "latency_ms": {"primary": _summary(counts.primary), "mirror": _summary(counts.mirror)},
        }


def reports(mirrors: Iterable[MirrorReport]) -> dict[str, Any]:
    """The reports of ``mirrors``, as plain values for JSON; ``different``: whether any answer differed."""
    found = list(mirrors)
    return {
        "different": any(report.counts.different for report in found),
        "mirrors": [report.as_dict() for report in found],
    }


def merge(these: list[MirrorReport], others: list[MirrorReport]) -> list[MirrorReport]:
    """Count ``others`` in these reports of the same mirrors, which began as an empty list."""
    if not these:
        these = [MirrorReport(each.name, each.to, each.percent, each.rtol, each.atol) for each in others]
    for this, other in zip(these, others, strict=True):
        this.merge(other)
    return these


def without_process(reports: list[MirrorReport]) -> list[MirrorReport]:
    """What stays of ``reports`` when their process has exited."""
    return [replace(each, held=0, held_bytes=0) for each in reports]


def _summary(latencies: Latencies) -> Mapping[str, float | None]:
    count = sum(latencies.counts)
    mean = round(latencies.ns / count / 1e6, 3) if count else None
    quantiles = {f"p{part}": quantile_ms(latencies, part / 100) for part in (50, 90, 99)}
    return {"count": count, "mean": mean, **quantiles}
