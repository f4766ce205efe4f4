"""How much of a mirror's recording is taken, by all processes that write to it together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interlingua.protocols.shared_counts import SharedCount

COLUMNS = 5
"""How many counts a process has."""


@dataclass(frozen=True, slots=True)
class KeptCounts:
    """The pairs that ``came`` and that were ``taken``, by whether their answers are equal; their bytes."""

    came: Mapping[bool, SharedCount]
    taken: Mapping[bool, SharedCount]
    nbytes: SharedCount

    @classmethod
    def of(cls, counts: Sequence[SharedCount]) -> KeptCounts:
        """Those of ``counts``, one for each column."""
        return cls(dict(enumerate(counts[:2])), dict(enumerate(counts[2:4])), counts[4])  # type: ignore[arg-type]

    @classmethod
    def alone(cls) -> KeptCounts:
        """Those of one process."""
        return cls.of([SharedCount(memoryview(bytearray(8)).cast("Q"), 0) for _ in range(COLUMNS)])
