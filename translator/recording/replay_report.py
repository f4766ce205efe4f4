"""The report of a replay: counts, latencies, the outputs that differ most; as text and as JSON."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from interlingua.translator.diff import AnswerDiff, TensorDiff

QUANTILES = (0.5, 0.9, 0.99, 1.0)

_SHOWN = 10
"""How many outputs, and how many failure messages, the text shows."""

_KINDS = 1000
"""How many failure messages are counted separately; a server may never repeat one."""


@dataclass(slots=True)
class ReplayOutput:
    """One output over all answers. Errors are maxima; ``example`` describes the answer with the largest
    absolute one."""

    compared: int = 0
    different: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    example: str = ""

    def add(self, diff: TensorDiff, where: str) -> None:
        """Count one comparison; ``where`` names the record."""
        self.compared += 1
        worse = diff.fault is not None and (not self.different or diff.max_absolute > self.max_absolute)
        self.different += diff.fault is not None
        self.max_absolute = max(self.max_absolute, diff.max_absolute)
        self.max_relative = max(self.max_relative, diff.max_relative)
        if worse:
            self.example = f"{where}: {_words(diff)}"


@dataclass(slots=True)
class ReplayReport:
    """Results of a replay: ``sent`` requests, of them ``equal`` and ``different`` answers, ``failed`` where
    an answer was recorded, and ``uncompared`` by reason; ``refused`` are those not sent, by reason.
    ``latencies`` and ``recorded`` are in seconds, one per sent request."""

    sent: int = 0
    equal: int = 0
    different: int = 0
    failed: int = 0
    uncompared: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    outputs: dict[tuple[str, str], ReplayOutput] = field(default_factory=dict)
    latencies: array[float] = field(default_factory=lambda: array("d"))
    recorded: array[float] = field(default_factory=lambda: array("d"))
    elapsed_secs: float = 0.0

    @property
    def good(self) -> bool:
        return not self.different and not self.failed and not self.refused

    def add(self, model: str, where: str, diff: AnswerDiff) -> None:
        """Count the answer to the record ``where``, a request for ``model``."""
        for output in diff.outputs:
            self.outputs.setdefault((model, output.name), ReplayOutput()).add(output, where)
        for kind, words in diff.failures:
            self.fail(words)
            if kind == "failed":
                self.failed += 1
                return
        self.equal += diff.equal
        self.different += not diff.equal

    def fail(self, words: str) -> None:
        if len(self.failures) < _KINDS or words in self.failures:
            self.failures[words] += 1

    @property
    def worst(self) -> Sequence[tuple[tuple[str, str], ReplayOutput]]:
        """The outputs that differed, largest error first."""
        wrong = [entry for entry in self.outputs.items() if entry[1].different]
        return sorted(wrong, key=lambda entry: entry[1].max_absolute, reverse=True)

    def as_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("sent", "equal", "different", "failed")},
            "uncompared": dict(self.uncompared),
            "refused": dict(self.refused),
            "elapsed_secs": self.elapsed_secs,
            "latency_ms": _quantiles(self.latencies),
            "recorded_latency_ms": _quantiles(self.recorded),
            "failures": dict(self.failures.most_common(_SHOWN)),
            "outputs": [
                {"model": model, "output": name, **asdict(output)}
                for (model, name), output in self.outputs.items()
            ],
        }

    def as_text(self) -> Iterator[str]:
        rate = self.sent / self.elapsed_secs if self.elapsed_secs else 0.0
        yield f"{self.sent} sent in {self.elapsed_secs:.2f} s ({rate:.1f}/s)"
        yield f"{self.equal} equal, {self.different} different, {self.failed} failed"
        yield from (f"{count} not compared: {reason}" for reason, count in self.uncompared.items())
        yield from (f"{count} not sent: {reason}" for reason, count in self.refused.items())
        for name, times in (("latency", self.latencies), ("recorded", self.recorded)):
            if times:
                found = ", ".join(f"{mark} {ms:.3f}" for mark, ms in _quantiles(times).items())
                yield f"{name:8} in ms: {found}"
        for (model, name), output in self.worst[:_SHOWN]:
            yield (
                f"output '{name}' of '{model}' differs in {output.different} of {output.compared} answers, "
                f"by {output.max_absolute:.6g} (relative {output.max_relative:.3g}) at most; {output.example}"
            )
        yield from (f"{count} times: {words}" for words, count in self.failures.most_common(_SHOWN))


def _quantiles(seconds: Iterable[float]) -> dict[str, float]:
    times = np.asarray(seconds) * 1000
    if not times.size:
        return {}
    found = np.quantile(times, QUANTILES)
    marks = ("max" if quantile == 1 else f"p{quantile * 100:g}" for quantile in QUANTILES)
    return dict(zip(marks, found.tolist(), strict=True))


def _words(diff: TensorDiff) -> str:
    fault = diff.fault.value if diff.fault is not None else "equal"
    where = "" if diff.index is None else f" at {list(diff.index)}"
    return f"{fault}{where}: {diff.actual or 'nothing'}, recorded {diff.expected or 'nothing'}"
