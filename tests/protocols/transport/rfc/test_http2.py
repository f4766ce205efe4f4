"""HTTP/2 by RFC 9113 and RFC 7541: every case against both engines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

import pytest
import uvloop

from tests.protocols.transport.rfc import http2_flow, http2_frames, http2_hpack, http2_messages
from tests.protocols.transport.rfc.http2 import Case, Outcome, outcomes
from tests.protocols.transport.rfc.http2_deviations import DEVIATIONS

CASES = [*http2_frames.CASES, *http2_flow.CASES, *http2_hpack.CASES, *http2_messages.CASES]
RULES = [case for case in CASES if not case.limit]
NAMES = [case.name for case in CASES]
EXPECTED: Mapping[Literal["native", "library"], Mapping[str, Outcome]] = {
    "native": {case.name: case.outcome for case in CASES},
    "library": {
        case.name: DEVIATIONS[case.name].outcome if case.name in DEVIATIONS else case.outcome
        for case in CASES
    },
}


@cache
def found(engine: Literal["native", "library"]) -> Mapping[str, Outcome]:
    """What every case leads to, on one listener."""
    return uvloop.run(outcomes(engine, CASES if engine == "native" else RULES, EXPECTED[engine]))


def check(engine: Literal["native", "library"], case: Case) -> None:
    assert found(engine)[case.name] == EXPECTED[engine][case.name], f"{case.name} (section {case.section})"


@pytest.mark.parametrize("case", CASES, ids=[name[:60] for name in NAMES])
def test_the_native_engine(case: Case) -> None:
    check("native", case)


@pytest.mark.parametrize("case", RULES, ids=[case.name[:60] for case in RULES])
def test_the_library_engine(case: Case) -> None:
    check("library", case)


def test_bytes_that_arrive_one_by_one() -> None:
    # a call is answered once its message is here, before trailers that break a rule
    late = [*http2_messages.TRAILER_FIELDS, *http2_messages.LENGTHS]
    cases = [case for case in CASES if len(case.sent) < 500 and case not in late]
    found = uvloop.run(outcomes("native", cases, EXPECTED["native"], piece=1))
    assert not [case.name for case in cases if found[case.name] != case.outcome]


def test_each_case_has_a_name() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 140


def test_deviations_differ_from_their_cases() -> None:
    expected = EXPECTED["native"]
    assert set(DEVIATIONS) <= set(expected)
    assert not [name for name, deviation in DEVIATIONS.items() if deviation.outcome == expected[name]]
