"""HTTP/1 by RFC 9110 and RFC 9112: every case against both engines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

import pytest
import uvloop

from tests.protocols.transport.rfc import http1_bodies, http1_connections, http1_heads
from tests.protocols.transport.rfc.http1 import Case, Outcome, outcomes
from tests.protocols.transport.rfc.http1_deviations import DEVIATIONS

CASES = [*http1_heads.CASES, *http1_bodies.CASES, *http1_connections.CASES]
NAMES = [case.name for case in CASES]


@cache
def found(engine: Literal["native", "library"]) -> Mapping[str, Outcome]:
    """What every case leads to, on one listener."""
    return uvloop.run(outcomes(engine, CASES))


@pytest.mark.parametrize("case", CASES, ids=[name[:60] for name in NAMES])
def test_the_native_engine(case: Case) -> None:
    assert found("native")[case.name] == case.outcome, f"{case.name} (section {case.section})"


@pytest.mark.parametrize("case", CASES, ids=[name[:60] for name in NAMES])
def test_the_library_engine(case: Case) -> None:
    deviation = DEVIATIONS.get(case.name)
    expected = case.outcome if deviation is None else deviation.outcome
    assert found("library")[case.name] == expected, f"{case.name} (section {case.section})"


def test_bytes_that_arrive_one_by_one() -> None:
    # whether a body is here decides about 100 Continue, and about the end of a connection after an early answer
    at_once = ("100-continue, body at once", "early answer after the body")
    cases = [case for case in CASES if len(case.sent) < 500 and case.name not in at_once]
    found = uvloop.run(outcomes("native", cases, piece=1))
    assert not [case.name for case in cases if found[case.name] != case.outcome]


def test_each_case_has_a_name() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 160


def test_deviations_differ_from_their_cases() -> None:
    expected = {case.name: case.outcome for case in CASES}
    assert set(DEVIATIONS) <= set(expected)
    assert not [name for name, deviation in DEVIATIONS.items() if deviation.outcome == expected[name]]
