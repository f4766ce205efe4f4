"""The settings of the interpreter."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from interlingua.translator.tuning import tune


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def test_a_process_that_serves_collects_less_and_switches_threads_sooner() -> None:
    gc.set_threshold(700, 10, 10)
    sys.setswitchinterval(0.005)
    tune()
    assert gc.get_threshold()[0] > 700
    assert sys.getswitchinterval() < 0.001
