"""What became of several copies, added up where they are judged, so that the daemon is told once of all."""

from __future__ import annotations

from dataclasses import dataclass, field

from interlingua.translator.mirror.report import Counts
from interlingua.translator.mirror.verdict import Copy, Verdict


@dataclass(slots=True)
class Findings:
    """``count`` copies, of ``nbytes`` together, are over: ``counts`` is what was found, ``lost`` of them have
    no verdict, for reasons of our own, which the log tells. ``sequences`` has the id of each that was part of
    one, and whether it came out as its caller's did, so that the next of that sequence makes sense."""

    counts: Counts = field(default_factory=Counts)
    count: int = 0
    nbytes: int = 0
    lost: int = 0
    sequences: list[tuple[int | str, bool]] = field(default_factory=list)

    def add(self, copy: Copy, verdict: Verdict | None) -> None:
        """Count in one that is over, with its verdict, None where there is none."""
        self.count += 1
        self.nbytes += copy.nbytes
        if verdict is None:
            self.lost += 1
        else:
            self.counts.add(copy.record, verdict)
        sequence = copy.record.request.sequence
        if sequence is not None:
            self.sequences.append((sequence.id, verdict is not None and not verdict.diff.failures))

    def merge(self, later: Findings) -> None:
        """Count in what became of others, after these."""
        self.counts.merge(later.counts)
        self.count += later.count
        self.nbytes += later.nbytes
        self.lost += later.lost
        self.sequences += later.sequences

    @classmethod
    def of(cls, copy: Copy, verdict: Verdict | None) -> Findings:
        """What became of one."""
        findings = cls()
        findings.add(copy, verdict)
        return findings
