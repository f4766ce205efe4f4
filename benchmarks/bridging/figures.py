"""What is measured besides the rows: a number, its unit and its target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured ``value``; it must be at most ``target``, or with ``at_least`` no less. ``note`` has the
    numbers from which it comes."""

    name: str
    value: float
    unit: str
    target: float | None
    note: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.target is None:
            return "for comparison"
        met = self.value >= self.target if self.at_least else self.value <= self.target
        return "ok" if met else "missed"

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        target = "" if self.target is None else f" ({sign} {self.target:g})"
        note = f"; {self.note}" if self.note else ""
        return f"{self.name}: {self.value:g} {self.unit}".rstrip() + f"{target} {self.verdict}{note}"
