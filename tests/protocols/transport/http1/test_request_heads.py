"""The heads of requests to an upstream: equal to those of a writer without a memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.http1.request import RequestHeads

CALLS = st.tuples(
    st.sampled_from(("GET", "POST")),
    st.sampled_from(("/a", "/b")),
    st.sampled_from(("", "q=1")),
    st.dictionaries(st.sampled_from(("A", "B")), st.sampled_from(("1", "2")), max_size=2),
    st.sampled_from((None, 0, 5)),
)


@given(st.lists(CALLS, min_size=1, max_size=8))
def test_a_head_depends_on_its_call_alone(
    calls: list[tuple[str, str, str, dict[str, str], int | None]],
) -> None:
    heads = RequestHeads("here", "/base")
    for call in calls:
        assert heads.write(*call) == RequestHeads("here", "/base").write(*call)


def test_changed_headers_are_written_again() -> None:
    heads, headers = RequestHeads("here", ""), {"A": "1"}
    first = heads.write("POST", "/", "", headers, 0)
    headers["A"] = "2"
    assert (b"A: 1" in first, b"A: 2" in heads.write("POST", "/", "", headers, 0)) == (True, True)


def test_a_head_that_cannot_be_written_does_not_replace_the_last() -> None:
    heads = RequestHeads("here", "")
    first = heads.write("GET", "/", "", {}, 0)
    with pytest.raises(ValueError, match="control character"):
        heads.write("GET", "/", "", {"A": "\n"}, 0)
    assert heads.write("GET", "/", "", {}, 0) == first
