"""Runs checks against a server."""

from __future__ import annotations

import enum
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, HypothesisException
from hypothesis.strategies import SearchStrategy

from interlingua.schemas import InferenceError
from interlingua.translator.conformance.answers import ANSWERS
from interlingua.translator.conformance.check import Check, Draw
from interlingua.translator.conformance.classes import CLASSES
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, skip_if
from interlingua.translator.conformance.exchange import shown_reply, shown_request
from interlingua.translator.conformance.malformed import MALFORMED
from interlingua.translator.conformance.memory import PLACES, REGIONS
from interlingua.translator.conformance.probes import PROBES
from interlingua.translator.conformance.refusals import ABSENT, REFUSALS
from interlingua.translator.conformance.sequences import SEQUENCES
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.streams import STREAMS
from interlingua.translator.conformance.wire import Wire

T = TypeVar("T")


class CheckStatus(enum.Enum):
    """The status of a check; ``UNSTEADY``: the same request broke the rule only sometimes."""

    PASSED = "passed"
    FAILED = "failed"
    UNSTEADY = "failed now and then"
    SKIPPED = "skipped"

    @property
    def bad(self) -> bool:
        return self in (CheckStatus.FAILED, CheckStatus.UNSTEADY)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of ``check`` for ``model``. ``reason`` says why it failed or was skipped; ``request`` is a
    shell command that reproduces a failure, ``reply`` the server's reply to it."""

    check: Check
    model: str
    status: CheckStatus
    reason: str = ""
    request: str = ""
    reply: str = ""
    secs: float = 0.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look: ``examples`` for each check at most, no new ones after ``secs``; the same ``seed``
    gives the same examples. ``shrink``: whether to look for a small example once one breaks the rule."""

    examples: int = 25
    secs: float = 20.0
    seed: int = 0
    shrink: bool = True


def checks_of(wire: Wire) -> tuple[Check, ...]:
    groups = (PROBES, ANSWERS, ABSENT, REFUSALS, MALFORMED, CLASSES, REGIONS, PLACES, SEQUENCES, STREAMS)
    return (*(check for group in groups for check in group.checks), *wire.checks)


def run_all(server: ServerUnderTest, checks: Iterable[Check], effort: Effort) -> Iterator[CheckResult]:
    for check in checks:
        yield run(check, server, effort)


def run(check: Check, server: ServerUnderTest, effort: Effort) -> CheckResult:
    began = time.monotonic()
    result = CheckResult(check, server.model, CheckStatus.PASSED)
    try:
        if check.name in server.wire.exempt:
            raise InapplicableError(server.wire.exempt[check.name])
        skip_if(check.infers and server.silent, server.silent)
        if check.once:
            _tried(check, server, _nothing)
        else:
            _search(check, server, effort)
    except InapplicableError as reason:
        result = replace(result, status=CheckStatus.SKIPPED, reason=str(reason))
    except ViolationError as violation:
        result = _failed(result, violation, server)
    return replace(result, secs=time.monotonic() - began)


_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, InferenceError, struct.error)


def _tried(check: Check, server: ServerUnderTest, draw: Draw) -> None:
    """Run one example. An exception while a check reads an answer means that the answer is invalid."""
    try:
        check.run(server, draw)
    except _UNREADABLE as fault:
        message = f"unreadable answer: {type(fault).__name__}: {fault}"
        raise ViolationError(message, server.last) from fault


class _UnsteadyError(ViolationError):
    """The same request broke the rule only sometimes."""


def _nothing(strategy: SearchStrategy[T]) -> T:
    raise AssertionError("a check that runs once draws no values")


def _search(check: Check, server: ServerUnderTest, effort: Effort) -> None:
    """Try examples until one breaks the rule, then shrink it. Raises what the check raises;
    ``InapplicableError`` if the rule applies to no example."""
    began = time.monotonic()
    found: list[ViolationError] = []
    silent: list[InapplicableError] = []
    spoke = late = False

    def example(data: Any) -> None:
        nonlocal spoke, late
        tried = spoke or silent or found
        if tried and time.monotonic() - began > effort.secs * (2 if found else 1):
            late = True
            if found:
                # stop shrinking: on a slow server it would take minutes
                raise found[-1]
            return
        try:
            _tried(check, server, data.draw)
            spoke = True
        except InapplicableError as reason:
            silent.append(reason)
        except ViolationError as violation:
            found.append(violation)
            raise

    searching: Callable[[], None] = seed(effort.seed)(
        settings(
            max_examples=effort.examples,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink) if effort.shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
            print_blob=False,
        )(given(st.data())(example))
    )
    try:
        searching()
    except Flaky:
        # an example stopped by the time limit looks unsteady too
        if found and not late:
            raise _UnsteadyError(found[-1].message, found[-1].exchange) from None
    except HypothesisException:
        if not found:
            raise
    if found:
        raise found[-1]
    if silent and not spoke:
        raise silent[0]


def _failed(result: CheckResult, violation: ViolationError, server: ServerUnderTest) -> CheckResult:
    exchange = violation.exchange
    status = CheckStatus.UNSTEADY if isinstance(violation, _UnsteadyError) else CheckStatus.FAILED
    return replace(
        result,
        status=status,
        reason=violation.message,
        request=shown_request(server.binding.transport, exchange.sent, server.url)
        if exchange is not None
        else "",
        reply=shown_reply(exchange) if exchange is not None else "",
    )
