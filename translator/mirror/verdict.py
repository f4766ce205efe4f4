"""What passes between a mirror and its judge: copies one way, what came of them the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from interlingua.translator.diff import AnswerDiff
from interlingua.translator.recording.record import Record


@dataclass(slots=True)
class Copy:
    """A request that waits to be copied, or whose copy is under way, for ``secs`` at most. Its tensors have
    ``nbytes``."""

    record: Record
    nbytes: int
    secs: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the other model's answer differs, whether it was an error, and how long it took. ``kept``: whether
    both were written down, as a pair of which kind."""

    diff: AnswerDiff
    failed: bool
    elapsed_ns: int
    kept: Literal["", "equal", "different", "failed"] = ""
