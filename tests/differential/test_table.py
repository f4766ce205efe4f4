"""Every case of the table, with plans and without: both are what was recorded."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from hypothesis import settings

from tests.differential.recorded import recorded
from tests.differential.running import Running, running
from tests.differential.table import CASES, WITHOUT_PLANS, Case, takes_plans

_PLANNED = [case for case in CASES if (case.caller, case.target) not in WITHOUT_PLANS]
_OTHERS = [case for case in CASES if (case.caller, case.target) in WITHOUT_PLANS]
_THOROUGH = settings.get_profile("untimed").max_examples > 100
"""``make properties`` runs every case, ``make test`` half of them, and fewer of those that no plan concerns."""


@pytest.fixture(scope="module")
def world() -> Iterator[Running]:
    with running() as made:
        yield made


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "case", [*_PLANNED[:: 1 if _THOROUGH else 2], *_OTHERS[:: 1 if _THOROUGH else 5]], ids=str
)
def test_a_case(case: Case, world: Running) -> None:
    expected = recorded(case.caller)[str(case)]
    planned = world.outcome(case, True)
    count = len(world.taken)
    assert orjson.loads(orjson.dumps(planned)) == expected
    assert count or not takes_plans(case), "no plan has taken a request"
    if count:  # otherwise that was the outcome without
        unplanned = world.outcome(case, False)
        assert not world.taken
        assert unplanned == planned


def test_every_recorded_case_exists() -> None:
    for caller in {case.caller for case in CASES}:
        assert set(recorded(caller)) == {str(case) for case in CASES if case.caller == caller}
