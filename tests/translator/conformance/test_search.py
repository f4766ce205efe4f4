"""How the kit looks for a request that breaks a rule, with checks that break on purpose."""

from __future__ import annotations

import time

from hypothesis import strategies as st

from interlingua.protocols.registry import DIALECTS
from interlingua.translator.conformance.check import Check, Draw, Run
from interlingua.translator.conformance.errors import InapplicableError, ViolationError
from interlingua.translator.conformance.kit import CheckResult, CheckStatus, Effort, run
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wires import wires
from tests.loopback import HttpLoopback, echoing, serving

NUMBERS = st.integers(0, 1000)


def result(body: Run, *, once: bool = False, effort: Effort | None = None) -> CheckResult:
    """What becomes of a check, of a server that is never asked."""
    client = HttpLoopback(serving(echoing({}), "oip"))
    with ServerUnderTest(
        DIALECTS["oip"].bindings["http"], "localhost:1", wires()["oip/http"], client=client
    ) as server:
        return run(Check("group/name", "A rule.", body, once), server, effort or Effort(50))


def test_the_smallest_example_is_reported() -> None:
    def below_hundred(server: ServerUnderTest, draw: Draw) -> None:
        number = draw(NUMBERS)
        if number >= 100:
            raise ViolationError(f"{number}")

    found = result(below_hundred)
    assert (found.status, found.reason) == (CheckStatus.FAILED, "100")


def test_the_same_seed_gives_the_same_examples() -> None:
    drawn: list[list[int]] = []

    def note(server: ServerUnderTest, draw: Draw) -> None:
        drawn[-1].append(draw(NUMBERS))

    for seed in (1, 1, 2):
        drawn.append([])
        result(note, effort=Effort(10, seed=seed))
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_says_nothing_of_one_example_may_speak_of_another() -> None:
    def odd_only(server: ServerUnderTest, draw: Draw) -> None:
        number = draw(NUMBERS)
        if number % 2 == 0:
            raise InapplicableError("even")
        if number > 10:
            raise ViolationError(f"{number}")

    found = result(odd_only)
    assert (found.status, found.reason) == (CheckStatus.FAILED, "11")


def test_what_says_nothing_of_any_example_is_skipped() -> None:
    def never(server: ServerUnderTest, draw: Draw) -> None:
        raise InapplicableError("never")

    for once in (True, False):
        found = result(never, once=once)
        assert (found.status, found.reason) == (CheckStatus.SKIPPED, "never")


def test_an_answer_that_cannot_be_read_is_a_failure() -> None:
    def unreadable(server: ServerUnderTest, draw: Draw) -> None:
        raise KeyError("outputs")

    for once in (True, False):
        found = result(unreadable, once=once)
        assert found.status is CheckStatus.FAILED
        assert found.reason == "unreadable answer: KeyError: 'outputs'"


def test_time_is_limited() -> None:
    asked = 0

    def count(server: ServerUnderTest, draw: Draw) -> None:
        nonlocal asked
        draw(NUMBERS)
        asked += 1

    assert result(count, effort=Effort(1000, secs=0)).status is CheckStatus.PASSED
    # one is tried in any case: a check that never ran has not passed
    assert asked == 1


def test_a_slow_search_for_a_smaller_example_ends() -> None:
    began = time.monotonic()

    def slow(server: ServerUnderTest, draw: Draw) -> None:
        numbers = draw(st.lists(NUMBERS, min_size=5, max_size=20))
        time.sleep(0.02)
        if sum(numbers) > 50:
            raise ViolationError("too large")

    found = result(slow, effort=Effort(50, secs=0.2))
    assert (found.status, found.reason) == (CheckStatus.FAILED, "too large")
    assert time.monotonic() - began < 5
