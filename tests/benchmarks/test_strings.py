"""The benchmark of strings measures turns that carry what they were given."""

from __future__ import annotations

import pytest

from benchmarks.strings import measure, turns


@pytest.mark.parametrize("shared", [False, True])
def test_both_sides_carry_the_strings(shared: bool) -> None:
    ours, oip = turns(1000, shared)
    words = ours().elements()
    assert words == oip().elements()
    assert len(set(words)) == (1 if shared else 1000) and len(words) == 1000


def test_both_sides_are_measured() -> None:
    assert all(spent > 0 for spent in measure(turns(100, False), 2))
