"""The whole matrix: every caller before every target, through two real daemons, everything that a request and
its answer may have. What comes out is what docs/fidelity.md says; INTERLINGUA_WRITE=1 writes the page.

Over the registry and the table of backends: what is added there is covered with no edit here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from interlingua.schemas import Datatype
from interlingua.translator.fidelity.features import FEATURES
from interlingua.translator.fidelity.page import page
from interlingua.translator.fidelity.parties import callers, targets
from interlingua.translator.fidelity.path import BINARY, PAYLOADS, judge
from tests.e2e import matrix_checks as checks
from tests.e2e.daemon import ROOT
from tests.e2e.matrix_checks import Cell
from tests.e2e.matrix_features import CHECKS
from tests.e2e.matrix_world import MISSING, World, installed, world

CELLS = [(caller, target) for caller in callers() for target in targets()]
INSTALLED = {target.name for target in installed()}
passed: set[tuple[str, str]] = set()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("m")) as both:
        yield both


@pytest.mark.parametrize(("caller", "target"), CELLS)
def test_cell(running: World, caller: str, target: str) -> None:
    if target not in INSTALLED:
        pytest.skip(f"needs the extra '{target}'")
    cell = Cell(running, callers()[caller], targets()[target])
    path = judge(cell.caller, cell.target)
    seen = {
        kind.value: (checks.tensor_sent(cell, kind), checks.tensor_answered(cell, kind)) for kind in Datatype
    }
    seen[BINARY] = (checks.binary(cell),) * 2
    seen[PAYLOADS] = (checks.payloads(cell),) * 2
    assert seen == {name: (sent.outcome, answered.outcome) for name, (sent, answered) in path.tensors.items()}
    assert {name: check(cell) for name, check in CHECKS.items()} == {
        name: path.features[name].outcome for name in CHECKS
    }
    checks.unknown_model(cell)
    checks.unknown_there(cell, MISSING)
    checks.failing_model(cell)
    checks.bad_input(cell)
    passed.add((caller, target))


def test_every_feature_has_a_check() -> None:
    assert CHECKS.keys() == FEATURES.keys()


def test_the_page_is_what_came_out() -> None:
    """Whoever runs a few cells by hand tests no more than those."""
    file = ROOT / "docs" / "fidelity.md"
    if os.environ.get("INTERLINGUA_WRITE"):
        assert passed == set(CELLS), "the page is written from a run of every cell"
        file.write_text(page(), encoding="utf-8")
    assert file.read_text(encoding="utf-8") == page()
