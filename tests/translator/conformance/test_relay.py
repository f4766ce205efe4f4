"""The kit finds what a relay in front of a right server does wrong, and nothing where it does nothing."""

from __future__ import annotations

import pytest

from interlingua.translator.conformance.kit import Effort, checks_of
from interlingua.translator.conformance.session import examine
from interlingua.translator.conformance.wires import wires
from tests.translator.conformance import faults, faults_by_rule
from tests.translator.conformance.relay import relay
from tests.translator.conformance.seeded import Seeded

EFFORT = Effort(examples=12, secs=10, shrink=False)

FAULTS = [*faults.FAULTS, *faults_by_rule.FAULTS]


def test_there_are_faults_enough() -> None:
    assert len({(seeded.name, seeded.rule) for seeded in FAULTS}) == len(FAULTS) >= 50


def test_every_rule_of_these_groups_finds_a_fault() -> None:
    groups = ("classification/", "shared-memory/", "sequences/")
    rules = {check.name for check in checks_of(wires()["oip/http"]) if check.name.startswith(groups)}
    assert {seeded.rule for seeded in faults_by_rule.FAULTS} == rules


@pytest.mark.parametrize("model", ["simple", "identity_bytes", "total"])
def test_a_relay_without_a_fault_passes(served: dict[str, str], model: str) -> None:
    with relay(served["http"]) as address:
        _, results = examine("oip", "http", address, [model], effort=EFFORT)
        assert not [result for result in results if result.status.bad]


@pytest.mark.parametrize("seeded", FAULTS, ids=lambda seeded: f"{seeded.name}-{seeded.rule}".rstrip("-"))
def test_a_fault_is_found(served: dict[str, str], seeded: Seeded) -> None:
    direction = {"on_way_up" if seeded.up else "on_way_back": seeded.fault}
    with relay(served["http"], **direction) as address:
        _, results = examine("oip", "http", address, [seeded.model], effort=EFFORT, only=seeded.rule)
        judged = (result for result in results if seeded.rule in ("", result.check.name))
        found = next((result for result in judged if result.status.bad), None)
    assert found is not None
    assert found.reason
