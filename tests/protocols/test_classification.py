"""Ranking, held against sorting with Python's own ``sorted``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interlingua.protocols.classification import Ranked, check_ranked, classify
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor

WITHOUT = {Datatype.BOOL, Datatype.FP16, Datatype.BF16, Datatype.BYTES}
RANKED = [datatype for datatype in Datatype if datatype not in WITHOUT]


def rank(
    values: Any, count: int, labels: tuple[str, ...] = (), *, batched: bool = False
) -> list[list[Ranked]]:
    return classify(Tensor.from_numpy("y", np.asarray(values)), count, labels, batched=batched)


def places(values: Any, count: int) -> list[int]:
    return [ranked.place for ranked in rank(values, count)[0]]


@st.composite
def values(draw: st.DrawFn) -> Any:
    """Arrays of every ranked datatype, with many equal values."""
    dtype = draw(st.sampled_from(RANKED)).dtype
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12))
    few = st.sampled_from([0, 1, 2]).map(dtype.type)
    return draw(arrays.arrays(dtype, shape, elements=st.one_of(few, arrays.from_dtype(dtype))))


@given(values=values(), count=st.integers(1, 40), batched=st.booleans())
def test_as_a_stable_sort_would(values: Any, count: int, batched: bool) -> None:
    def key(place: int, row: list[Any]) -> tuple[float, int]:
        value = row[place]
        return (math.inf if value != value else -value), place

    found = rank(values, count, ("zero", "one"), batched=batched)
    rows = list(values) if batched and values.ndim else [values]
    assert len(found) == len(rows)
    for ranked, row in zip(found, [row.ravel().tolist() for row in rows], strict=True):
        expected = sorted(range(len(row)), key=lambda place, row=row: key(place, row))[:count]
        assert [each.place for each in ranked] == expected
        np.testing.assert_equal([each.value for each in ranked], [row[place] for place in expected])
        assert [each.label for each in ranked] == [("zero", "one", *[""] * 2000)[place] for place in expected]


def test_of_equals_the_first_comes_first() -> None:
    assert places([1.0, 3, 3, 2, 3], 4) == [1, 2, 4, 3]
    assert places(np.zeros(100, np.uint8), 3) == [0, 1, 2]


def test_nan_comes_last() -> None:
    assert places([math.nan, 1.0, math.nan, math.inf], 4) == [3, 1, 0, 2]
    assert places([math.nan, -math.inf, 0.0], 1) == [2]


def test_integers_are_compared_as_such() -> None:
    # as floats these three are equal
    assert places(np.array([2**62, 2**62 + 2, 2**62 + 1], np.int64), 3) == [1, 2, 0]
    assert places(np.array([2**64 - 2, 2**64 - 1, 0], np.uint64), 2) == [1, 0]
    assert places(np.array([-128, 127, 0], np.int8), 3) == [1, 2, 0]


def test_a_batch_is_ranked_entry_by_entry() -> None:
    table = np.array([[[1, 5], [3, 2]], [[9, 0], [0, 0]]], np.int32)
    assert rank(table, 2, ("a", "b"), batched=True) == [
        [(1, 5, "b"), (2, 3, "")],
        [(0, 9, "a"), (1, 0, "b")],
    ]
    assert rank(table, 2)[0] == [(4, 9, ""), (1, 5, "")]


@pytest.mark.parametrize(
    ("shape", "batched", "entries"), [((0, 3), True, 0), ((2, 0), True, 2), ((0,), False, 1), ((), True, 1)]
)
def test_without_elements(shape: tuple[int, ...], batched: bool, entries: int) -> None:
    found = rank(np.zeros(shape, np.float32), 3, batched=batched)
    assert len(found) == entries
    assert sum(map(len, found)) == (1 if shape == () else 0)


@pytest.mark.parametrize("datatype", sorted(WITHOUT, key=repr), ids=repr)
def test_datatypes_that_are_not_ranked(datatype: Datatype) -> None:
    empty = Tensor("y", datatype, (0,), memoryview(b""))
    for refuse in (lambda: check_ranked("y", datatype), lambda: classify(empty, 1, (), batched=False)):
        with pytest.raises(InferenceError) as caught:
            refuse()
        assert caught.value.code is ErrorCode.INVALID_TENSOR
        assert caught.value.message == (
            f"class result not available for output due to unsupported type '{datatype.value}' of 'y'"
        )
