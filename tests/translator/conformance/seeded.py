"""Faults that are seeded: what each is called, where it shows, and the rule that has to find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.translator.conformance.relay import Fault


@dataclass(frozen=True)
class Seeded:
    """A fault, the model that shows it, and the direction in which it strikes. ``rule`` is the one that has to
    find it; where there is none, any may."""

    name: str
    model: str
    fault: Fault
    up: bool = False
    rule: str = ""


class Seed(Protocol):
    """Makes a decorator for a fault of ``model``, which each of ``rules`` has to find."""

    def __call__(self, model: str, *rules: str, up: bool = False) -> Callable[[Fault], Fault]: ...


def seeds() -> tuple[list[Seeded], Seed]:
    """A list, and what adds to it."""
    found: list[Seeded] = []

    def seed(model: str, *rules: str, up: bool = False) -> Callable[[Fault], Fault]:
        def add(fault: Fault) -> Fault:
            found.extend(Seeded(fault.__name__, model, fault, up, rule) for rule in rules or ("",))
            return fault

        return add

    return found, seed
