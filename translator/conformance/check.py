"""What a check is: a rule in one sentence, and the code that looks for a request that breaks it.

A check draws what it needs from Hypothesis and raises :class:`ViolationError` where the rule does not hold,
or :class:`InapplicableError` where it says nothing of this server or model. Modules of checks fill a
``Group``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from interlingua.translator.conformance.exchange import Exchange

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from interlingua.translator.conformance.subject import Subject

T = TypeVar("T")
Run = Callable[["Subject", "Draw"], None]


class Draw(Protocol):
    """Gives a value of a Hypothesis strategy; on failure Hypothesis looks for a smaller one."""

    def __call__(self, strategy: SearchStrategy[T]) -> T:
        """One value."""


class ViolationError(AssertionError):
    """The server broke the rule. ``exchange`` is the request that shows it, where there is one."""

    def __init__(self, message: str, exchange: Exchange | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.exchange = exchange


class InapplicableError(Exception):
    """The rule says nothing of this server or model, for the reason given."""


@dataclass(frozen=True, slots=True)
class Check:
    """``name`` is `group/what`; ``once``: nothing is generated, so that one run tells all. ``asks``: it is
    about answers of the model, and says nothing of one that never gives any."""

    name: str
    rule: str
    run: Run
    once: bool = False
    asks: bool = False


@dataclass(slots=True)
class Group:
    """Checks that belong together, in the order in which they were written."""

    name: str
    asks: bool = False
    checks: list[Check] = field(default_factory=list)

    def __call__(self, rule: str, *, once: bool = False) -> Callable[[Run], Run]:
        """A decorator: the function is the check, and its name that of the check."""

        def add(run: Run) -> Run:
            name = f"{self.name}/{run.__name__.replace('_', '-')}"
            self.checks.append(Check(name, rule, run, once, self.asks))
            return run

        return add
