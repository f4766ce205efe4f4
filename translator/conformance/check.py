"""A check: a rule in one sentence, and code that searches for a request that breaks it.

A check draws values from Hypothesis and raises :class:`ViolationError` if the server breaks the rule, or
:class:`InapplicableError` if the rule does not apply to the server or model. Each module of checks fills a
``Group``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


T = TypeVar("T")
Run = Callable[[Any, "Draw"], None]
"""Gets the ``ServerUnderTest``, whose module imports this one."""


class Draw(Protocol):
    """Draws a value of a Hypothesis strategy; on failure Hypothesis shrinks it."""

    def __call__(self, strategy: SearchStrategy[T]) -> T:
        """One value."""


@dataclass(frozen=True, slots=True)
class Check:
    """``name`` is `group/check`. ``once``: the check generates no values, so one run suffices. ``infers``: it
    needs answers of the model."""

    name: str
    rule: str
    run: Run
    once: bool = False
    infers: bool = False


@dataclass(slots=True)
class Group:
    """Related checks, in definition order."""

    name: str
    infers: bool = False
    checks: list[Check] = field(default_factory=list)

    def __call__(self, rule: str, *, once: bool = False) -> Callable[[Run], Run]:
        """A decorator that adds a function as a check, under the function's name."""

        def add(run: Run) -> Run:
            name = f"{self.name}/{run.__name__.replace('_', '-')}"
            self.checks.append(Check(name, rule, run, once, self.infers))
            return run

        return add
