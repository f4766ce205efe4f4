"""The fuzz targets on their seeds and on past findings, without a fuzzer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz.table import TARGETS
from tests.fuzz.target import MAX_MEMORY_BYTES, MAX_SECS, CostlyInputError, Target

FINDINGS = sorted((Path(__file__).parent / "findings").glob("*/*"))
"""Inputs by the name of their target; each was a finding."""


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_takes_its_seeds(name: str) -> None:
    seeds = list(TARGETS[name].seeds())
    assert seeds
    for seed in seeds:
        assert len(seed) <= TARGETS[name].max_bytes
        TARGETS[name].run(seed)


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_finding_stays_mended(path: Path) -> None:
    TARGETS[path.parent.name].check(path.read_bytes())


def _target(run: object) -> Target:
    return Target("sample", run, lambda: ())  # type: ignore[arg-type]


def _busy(data: bytes) -> None:
    end = time.thread_time() + 1.2 * MAX_SECS
    while time.thread_time() < end:
        pass


def test_an_input_that_takes_long_is_a_finding() -> None:
    with pytest.raises(CostlyInputError, match="an input of 1 bytes takes 1[2-9][0-9] ms"):
        _target(_busy).check(b"x")


def test_an_input_that_takes_much_memory_is_a_finding() -> None:
    with pytest.raises(CostlyInputError, match="MiB"):
        _target(lambda data: b"x" * (MAX_MEMORY_BYTES * 3 // 2)).check(b"x")


def test_only_the_repeated_cost_of_an_input_counts() -> None:
    seen: list[bytes] = []

    def run(data: bytes) -> None:
        if not seen:
            _busy(data)
        seen.append(data)

    _target(run).check(b"x")
    assert len(seen) == 2
