"""A check: a rule in one sentence, and code that searches for a request that breaks it.

A check draws values from Hypothesis and raises :class:`ViolationError` if the server breaks the rule, or
:class:`InapplicableError` if the rule does not apply to the server or model. Each module of checks fills a
``Group``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlingua.translator.conformance.exchange import WireExchange

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


T = TypeVar("T")
Run = Callable[[Any, "Draw"], None]
"""Gets the ``ServerUnderTest``, whose module imports this one."""


class Draw(Protocol):
    """Draws a value of a Hypothesis strategy; on failure Hypothesis shrinks it."""

    def __call__(self, strategy: SearchStrategy[T]) -> T:
        """One value."""


class ViolationError(AssertionError):
    """The server broke the rule. ``exchange`` has the request that shows it, if there is one."""

    def __init__(self, message: str, exchange: WireExchange | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.exchange = exchange


class InapplicableError(Exception):
    """The rule does not apply to this server or model; the message says why."""


def expect(holds: object, message: str, exchange: WireExchange | None = None) -> None:
    """Raise ``ViolationError`` unless ``holds``."""
    if not holds:
        raise ViolationError(message, exchange)


def expect_names(side: str, names: Sequence[Any], exchange: WireExchange | None) -> None:
    """Raise ``ViolationError`` unless every ``side`` (input or output) has a name of its own."""
    expect(all(names), f"an {side} has no name", exchange)
    expect(len(set(map(str, names))) == len(names), f"two of the {side}s {names} have one name", exchange)


def skip_if(holds: object, reason: str) -> None:
    """Raise ``InapplicableError`` if ``holds``."""
    if holds:
        raise InapplicableError(reason)


@dataclass(frozen=True, slots=True)
class Check:
    """``name`` is `group/check`. ``once``: the check generates no values, so one run suffices. ``asks``: it
    needs answers of the model."""

    name: str
    rule: str
    run: Run
    once: bool = False
    asks: bool = False


@dataclass(slots=True)
class Group:
    """Related checks, in definition order."""

    name: str
    asks: bool = False
    checks: list[Check] = field(default_factory=list)

    def __call__(self, rule: str, *, once: bool = False) -> Callable[[Run], Run]:
        """A decorator that adds a function as a check, under the function's name."""

        def add(run: Run) -> Run:
            name = f"{self.name}/{run.__name__.replace('_', '-')}"
            self.checks.append(Check(name, rule, run, once, self.asks))
            return run

        return add
