"""Ratios that a benchmark holds against a target, and the report of its rows and of these."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import progress


@dataclass(frozen=True)
class Verdict:
    """``ratio`` is to be at least ``target``; ``at_most`` for a cost."""

    what: str
    ratio: float
    target: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the ratio meets the target."""
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target


def report(rows: Sequence[Any], verdicts: Sequence[Verdict], *, as_json: bool) -> None:
    """Print the verdicts; ``as_json`` one object of the ``rows``, which are dataclasses, and the verdicts."""
    if as_json:
        targets = [{**asdict(verdict), "met": verdict.met} for verdict in verdicts]
        progress.say(json.dumps({"rows": [asdict(row) for row in rows], "targets": targets}, indent=2) + "\n")
        return
    for verdict in verdicts:
        sign = "<=" if verdict.at_most else ">="
        outcome = "ok" if verdict.met else "missed"
        progress.say(f"{verdict.what}: {verdict.ratio} (target {sign} {verdict.target:g}) {outcome}\n")
    progress.say(f"load {load_average()}\n")


def load_average() -> str:
    """How busy the machine was over 1, 5 and 15 minutes."""
    return " ".join(f"{each:.1f}" for each in os.getloadavg())
