"""What a mirror and its judge exchange: copies one way, comparisons the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from interlingua.schemas.trace import Trace
from interlingua.translator.diff import AnswerDiff
from interlingua.translator.recording.record import Record


@dataclass(slots=True)
class Copy:
    """A copied request, waiting or in flight. The mirror model has ``secs`` to answer; the tensors have
    ``nbytes``. ``trace`` records the copy, if the request is sampled."""

    record: Record
    nbytes: int
    secs: float
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the mirror model's answer differs, whether it is an error, and how long it took. ``kept`` is the
    kind of pair that was recorded, empty for none."""

    diff: AnswerDiff
    failed: bool
    elapsed_ns: int
    kept: Literal["", "equal", "different", "failed"] = ""
