"""Results of several copies, summed by the judge, so that the daemon receives one message for all."""

from __future__ import annotations

from dataclasses import dataclass, field

from interlingua.schemas.trace import Trace
from interlingua.translator.mirror.comparison import Comparison, Copy
from interlingua.translator.mirror.report import Counts


@dataclass(slots=True)
class Findings:
    """The results of ``count`` finished copies of ``nbytes`` together: ``counts`` sums their comparisons;
    ``lost`` of them have none because of an internal error, which the log has. ``sequences`` has the sequence
    id of each copy that was part of one, and whether the sequence may continue: both sides answered alike.
    ``traces`` has those of sampled copies."""

    counts: Counts = field(default_factory=Counts)
    count: int = 0
    nbytes: int = 0
    lost: int = 0
    sequences: list[tuple[int | str, bool]] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)

    def add(self, copy: Copy, comparison: Comparison | None) -> None:
        """Count one finished copy; ``comparison`` is None if an internal error prevented it."""
        self.count += 1
        self.nbytes += copy.nbytes
        if comparison is None:
            self.lost += 1
        else:
            self.counts.add(copy.record, comparison)
        if copy.trace is not None:
            self.traces.append(copy.trace)
        sequence = copy.record.request.sequence
        if sequence is not None:
            self.sequences.append((sequence.id, comparison is not None and not comparison.diff.failures))

    def merge(self, later: Findings) -> None:
        self.counts.merge(later.counts)
        self.count += later.count
        self.nbytes += later.nbytes
        self.lost += later.lost
        self.sequences += later.sequences
        self.traces += later.traces

    @classmethod
    def of(cls, copy: Copy, comparison: Comparison | None) -> Findings:
        findings = cls()
        findings.add(copy, comparison)
        return findings
