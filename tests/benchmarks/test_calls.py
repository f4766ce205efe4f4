"""How many Python calls a request takes, which no busy machine changes."""

from __future__ import annotations

import pytest

from benchmarks.calls import WALKS, Walk, count


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_a_request_takes_no_more_calls(walk: Walk) -> None:
    calls = count(walk)
    print(f"{walk.name}: {calls.total()} calls")
    assert 0 < calls.total() <= walk.target, calls.most_common()
