"""The numeric diff against a plain one in NumPy, and by examples."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interlingua.schemas import Datatype, Tensor
from interlingua.translator.diff import Fault, TensorDiff, Tolerance, compare_tensors
from interlingua.translator.diff import tensors as diff_tensors
from tests.strategies import shapes, tensors

FLOATS = (Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64)
WHOLE = tuple(set(Datatype) - set(FLOATS) - {Datatype.BYTES})
EXACT = Tolerance()
tolerances = st.builds(
    Tolerance, st.sampled_from([0.0, 1e-6, 1e-3, 0.5]), st.sampled_from([0.0, 1e-6, 1e-3, 1.0])
)


def reference(right: Tensor, other: Tensor, tolerance: Tolerance) -> dict[str, Any]:
    """What the diff says of values, element by element in Python's own arithmetic."""
    values = [tensor.numpy().ravel().tolist() for tensor in (right, other)]
    if right.datatype is Datatype.BF16:
        values = [tensor.numpy().astype(np.float64).ravel().tolist() for tensor in (right, other)]
    wrong, nonfinite, absolute, relative = [], 0, 0.0, 0.0
    for place, (y, x) in enumerate(zip(*values, strict=True)):
        if right.datatype in FLOATS:
            finite = math.isfinite(x) and math.isfinite(y)
            close = bool(np.isclose(x, y, tolerance.rtol, tolerance.atol, equal_nan=True))
        else:
            finite, close = not isinstance(x, bytes), x == y
        if not close:
            wrong.append(place)
            nonfinite += not finite and not isinstance(x, bytes)
        if finite:
            error = abs(int(x) - int(y)) if isinstance(x, int) else min(abs(x - y), diff_tensors._LARGEST)
            absolute = max(absolute, error)
            if y:
                relative = max(relative, min(float(np.divide(error, abs(float(y)))), diff_tensors._LARGEST))
    first = None
    if wrong:
        first = tuple(int(place) for place in np.unravel_index(wrong[0], right.shape))
    return {
        "different": len(wrong),
        "nonfinite": nonfinite,
        "max_absolute": absolute,
        "max_relative": relative,
        "index": first,
    }


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Two tensors alike in all but values, some of which are the same."""
    right = draw(tensors(name="out", shape=shapes(max_side=3)))
    size = right.datatype.itemsize
    if right.datatype is Datatype.BYTES or not right.count:
        return right, draw(tensors({right.datatype}, "out", st.just(right.shape)))
    data = bytearray(right.view)
    for place in draw(st.lists(st.integers(0, right.count - 1), max_size=4)):
        data[place * size : (place + 1) * size] = draw(st.binary(min_size=size, max_size=size))
        if right.datatype is Datatype.BOOL:
            data[place] &= 1
    return right, Tensor.checked("out", right.datatype, right.shape, bytes(data))


@given(pairs(), tolerances, st.sampled_from([1, 2, 3, 1 << 15]))
@settings(max_examples=400, deadline=None)
def test_the_diff_is_what_numpy_says(pair: tuple[Tensor, Tensor], tolerance: Tolerance, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff_tensors, "_PIECE", piece)
        found = compare_tensors(*pair, tolerance)
    with np.errstate(all="ignore"):
        expected = reference(*pair, tolerance)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.count == pair[0].count
    assert (found.fault is None) == (expected["different"] == 0)
    # what comes out of it goes into JSON
    assert math.isfinite(found.max_absolute) and math.isfinite(found.max_relative)


@given(pairs())
@settings(max_examples=150, deadline=None)
def test_a_tensor_does_not_differ_from_itself(pair: tuple[Tensor, Tensor]) -> None:
    right, _ = pair
    copy = Tensor.checked("out", right.datatype, right.shape, bytes(right.view))
    assert compare_tensors(right, copy, EXACT) == TensorDiff("out", None, right.count)


@given(
    st.sampled_from([Datatype.INT64, Datatype.UINT64, Datatype.INT8, Datatype.UINT32]),
    st.data(),
)
@example(Datatype.INT64, None)
def test_integers_of_any_size_are_subtracted_exactly(datatype: Datatype, data: Any) -> None:
    limits = np.iinfo(datatype.dtype)
    number = st.integers(int(limits.min), int(limits.max))
    one, other = (
        (int(limits.min), int(limits.max)) if data is None else (data.draw(number), data.draw(number))
    )
    right, actual = (Tensor.from_numpy("out", np.array([value], datatype.dtype)) for value in (one, other))
    found = compare_tensors(right, actual, Tolerance(1.0, 1e30))
    assert found.max_absolute == abs(one - other)
    assert (found.fault is Fault.VALUES) == (one != other)
    if one != other:
        assert (found.expected, found.actual) == (str(one), str(other))


def floats(*values: float, datatype: Datatype = Datatype.FP32) -> Tensor:
    return Tensor.from_numpy("out", np.array(values).astype(datatype.dtype), datatype)


@pytest.mark.parametrize("datatype", FLOATS)
def test_what_is_special_among_floats(datatype: Datatype) -> None:
    inf, nan = math.inf, math.nan
    right = floats(nan, inf, -inf, 0.0, -0.0, 1.0, datatype=datatype)
    assert (
        compare_tensors(right, floats(nan, inf, -inf, -0.0, 0.0, 1.0, datatype=datatype), EXACT).fault is None
    )
    found = compare_tensors(right, floats(1.0, -inf, nan, nan, inf, 1.5, datatype=datatype), EXACT)
    assert (found.different, found.nonfinite, found.index) == (6, 5, (0,))
    # one infinity does not hide how far the others are off
    assert (found.max_absolute, found.max_relative) == (0.5, 0.5)


def test_nan_equals_nan_with_other_bits() -> None:
    one = Tensor.checked("out", Datatype.FP32, (1,), b"\x01\x00\xc0\x7f")
    other = Tensor.checked("out", Datatype.FP32, (1,), b"\x00\x00\xc0\xff")
    assert compare_tensors(one, other, EXACT).fault is None


def test_one_wrong_element_is_found_where_it_is() -> None:
    right = np.ones((3, 200, 100), np.float32)
    other = right.copy()
    other[2, 100, 7] += np.float32(1e-3)
    found = compare_tensors(
        Tensor.from_numpy("out", right), Tensor.from_numpy("out", other), Tolerance(1e-5, 1e-8)
    )
    assert (found.fault, found.different, found.index) == (Fault.VALUES, 1, (2, 100, 7))
    assert found.max_absolute == pytest.approx(1e-3, rel=1e-3) == found.max_relative
    assert found.expected == "1.0" and found.actual.startswith("1.00")
    within = compare_tensors(
        Tensor.from_numpy("out", right), Tensor.from_numpy("out", other), Tolerance(atol=2e-3)
    )
    # what is within the tolerance is measured all the same
    assert within.fault is None and within.max_absolute == found.max_absolute


def test_halves_are_subtracted_as_doubles() -> None:
    right, other = floats(60000.0, datatype=Datatype.FP16), floats(-60000.0, datatype=Datatype.FP16)
    assert compare_tensors(right, other, EXACT).max_absolute == 120000.0
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    found = compare_tensors(
        floats(largest, datatype=Datatype.BF16), floats(-largest, datatype=Datatype.BF16), EXACT
    )
    assert found.max_absolute == 2 * largest


def test_shapes_and_datatypes() -> None:
    right = floats(1.0, 2.0)
    found = compare_tensors(right, Tensor.from_numpy("out", np.ones((1, 2), np.float32)), EXACT)
    assert (found.fault, found.expected, found.actual) == (Fault.SHAPE, "[2]", "[1, 2]")
    found = compare_tensors(right, Tensor.from_numpy("out", np.array([1, 2], np.int32)), EXACT)
    assert (found.fault, found.expected, found.actual) == (Fault.DATATYPE, "FP32", "INT32")


def test_floats_of_two_datatypes_are_compared_all_the_same() -> None:
    found = compare_tensors(floats(1.0, 2.0), floats(1.0, 2.5, datatype=Datatype.FP16), EXACT)
    assert (found.fault, found.expected, found.actual) == (Fault.DATATYPE, "FP32", "FP16")
    assert (found.different, found.index, found.max_absolute) == (1, (1,), 0.5)


def test_true_is_whatever_is_not_zero() -> None:
    one = Tensor("out", Datatype.BOOL, (3,), memoryview(b"\x01\x00\x02"))
    other = Tensor("out", Datatype.BOOL, (3,), memoryview(b"\x02\x00\x01"))
    assert compare_tensors(one, other, EXACT).fault is None
    found = compare_tensors(one, Tensor("out", Datatype.BOOL, (3,), memoryview(b"\x01\x01\x01")), EXACT)
    assert (found.index, found.expected, found.actual) == ((1,), "False", "True")


def words(*elements: bytes, shape: tuple[int, ...] | None = None) -> Tensor:
    array = np.array([*elements, None], dtype=object)[:-1].reshape(shape or (len(elements),))
    return Tensor.from_numpy("out", array)


def test_of_bytes_the_first_element_and_its_first_byte() -> None:
    right = words(b"same", b"", b"hello", b"x" * 9000, shape=(2, 2))
    found = compare_tensors(right, words(b"same", b"", b"help!", b"x" * 8999 + b"y", shape=(2, 2)), EXACT)
    assert (found.fault, found.different, found.index, found.byte) == (Fault.VALUES, 2, (1, 0), 3)
    assert (found.expected, found.actual) == ("5 bytes", "5 bytes")
    longer = compare_tensors(right, words(b"same", b"", b"hello", b"x" * 9001, shape=(2, 2)), EXACT)
    assert (longer.index, longer.byte, longer.actual) == ((1, 1), 9000, "9001 bytes")
    late = compare_tensors(right, words(b"same", b"", b"hello", b"x" * 8999 + b"y", shape=(2, 2)), EXACT)
    assert (late.index, late.byte) == ((1, 1), 8999)


def test_memory_does_not_grow_with_the_tensor() -> None:
    right = np.zeros(4_000_000, np.float32)
    one, other = Tensor.from_numpy("out", right), Tensor.from_numpy("out", right + np.float32(1.0))
    tracemalloc.start()
    try:
        found = compare_tensors(one, other, EXACT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.different == 4_000_000
    assert peak < 6 << 20
