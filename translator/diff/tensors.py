"""How a tensor differs from the expected one, in one pass over bounded pieces.

Floats are compared as doubles within a tolerance; NaN equals NaN, infinities equal themselves, the sign of
zero does not count. Integers, BOOL and BYTES must be equal."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Datatype, Tensor
from interlingua.translator.diff.packed import Elements, walk

_PIECE = 1 << 15
"""Elements per piece: six arrays of doubles of this length, tens of microseconds of work each."""

_LARGEST = sys.float_info.max

_FLOATS = frozenset({Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64})


class Fault(enum.Enum):
    """The worst fault of an output; reports contain ``value``."""

    VALUES = "values"
    SHAPE = "shape"
    DATATYPE = "datatype"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats are equal if they differ by at most ``atol + rtol * |expected|``, as in NumPy's ``isclose``."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True, slots=True)
class TensorDiff:
    """How output ``name`` of response number ``response`` differs; equal if ``fault`` is None.

    Of ``count`` elements ``different`` are unequal, the first at ``index``; for BYTES, ``byte`` is the first
    differing byte of that element. ``max_absolute`` and ``max_relative`` are the largest errors over all
    elements that are finite on both sides, including those within the tolerance; ``max_relative`` is relative
    to nonzero expected values. Both saturate at the largest double. ``nonfinite`` counts the unequal elements
    of which one is NaN or infinite. ``expected`` and ``actual`` describe the elements at ``index``, or the
    whole tensor. ``sides`` are the unequal tensors themselves, if they are there."""

    name: str
    fault: Fault | None = None
    count: int = 0
    different: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    nonfinite: int = 0
    index: tuple[int, ...] | None = None
    byte: int | None = None
    expected: str = ""
    actual: str = ""
    response: int = 0
    sides: tuple[Tensor | None, Tensor | None] = field(default=(None, None), compare=False, repr=False)


def compare_tensors(expected: Tensor, actual: Tensor, tolerance: Tolerance) -> TensorDiff:
    """How ``actual`` differs from ``expected``. Floats of different datatypes are compared too, which shows
    whether only the datatype is wrong."""
    if expected.shape != actual.shape:
        shapes = (str(list(expected.shape)), str(list(actual.shape)))
        return TensorDiff(expected.name, Fault.SHAPE, expected=shapes[0], actual=shapes[1])
    types = (expected.datatype, actual.datatype)
    if types[0] is not types[1] and not _FLOATS.issuperset(types):
        return TensorDiff(expected.name, Fault.DATATYPE, expected=types[0].value, actual=types[1].value)
    if types[0] is Datatype.BYTES:
        return _compare_bytes(expected, actual)
    return _compare_numbers(expected, actual, tolerance)


def _compare_numbers(expected: Tensor, actual: Tensor, tolerance: Tolerance) -> TensorDiff:
    found = _Found()
    same = expected.datatype is actual.datatype
    compare = _floats if expected.datatype in _FLOATS else _integers
    for start, right, other in _pieces(expected, actual):
        # most are bitwise equal, which is cheap to check
        if not same or not np.array_equal(right.view(np.uint8), other.view(np.uint8)):
            numbers = _numbers(right, expected.datatype), _numbers(other, actual.datatype)
            compare(found, start, *numbers, tolerance)
    fault = Fault.VALUES if found.different else None
    index, words = None, ("", "")
    if found.first is not None:
        index = tuple(int(place) for place in np.unravel_index(found.first, expected.shape))
        words = (_word(expected, found.first), _word(actual, found.first))
    if not same:
        fault, words = Fault.DATATYPE, (expected.datatype.value, actual.datatype.value)
    errors = (found.different, found.max_absolute, found.max_relative, found.nonfinite)
    return TensorDiff(expected.name, fault, expected.count, *errors, index, None, *words)


@dataclass(slots=True)
class _Found:
    """The differences so far; ``first`` is a flat row-major index."""

    different: int = 0
    max_absolute: float = 0
    max_relative: float = 0.0
    nonfinite: int = 0
    first: int | None = None

    def add(self, start: int, wrong: NDArray[np.bool_]) -> None:
        count = int(np.count_nonzero(wrong))
        if count and self.first is None:
            self.first = start + int(np.argmax(wrong))
        self.different += count


def _pieces(expected: Tensor, actual: Tensor) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    right, other = (
        np.frombuffer(tensor.view, dtype=_storage(tensor.datatype)) for tensor in (expected, actual)
    )
    for start in range(0, right.size, _PIECE):
        yield start, right[start : start + _PIECE], other[start : start + _PIECE]


_STORAGE: dict[Datatype, np.dtype[Any]] = {Datatype.BF16: np.dtype("<u2"), Datatype.BOOL: np.dtype(np.uint8)}
"""Storage types of elements that NumPy lacks (BF16) or that have several encodings (BOOL)."""


def _storage(datatype: Datatype) -> np.dtype[Any]:
    return _STORAGE.get(datatype, datatype.dtype)


def _numbers(values: NDArray[Any], datatype: Datatype) -> NDArray[Any]:
    if datatype is Datatype.BF16:  # the upper half of FP32
        return np.asarray(values.astype("<u4") << np.uint32(16)).view("<f4")
    if datatype is Datatype.BOOL:  # any nonzero byte is true
        return np.asarray(values != 0).view(np.uint8)
    return values


def _floats(
    found: _Found, start: int, right: NDArray[Any], other: NDArray[Any], tolerance: Tolerance
) -> None:
    with np.errstate(all="ignore"):
        y, x = right.astype(np.float64), other.astype(np.float64)
        size = np.abs(y)
        error = np.abs(x - y)
        finite = np.isfinite(x) & np.isfinite(y)
        close = finite & (error <= tolerance.atol + tolerance.rtol * size)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        wrong = ~(close | same)
        found.add(start, wrong)
        found.nonfinite += int(np.count_nonzero(wrong & ~finite))
        found.max_absolute = max(found.max_absolute, _largest(error, finite))
        found.max_relative = max(found.max_relative, _largest(error / size, finite & (size > 0)))


def _integers(
    found: _Found, start: int, right: NDArray[Any], other: NDArray[Any], tolerance: Tolerance
) -> None:
    """Also for BOOL. Ignores ``tolerance``."""
    wrong = right != other
    found.add(start, wrong)
    y, x = right[wrong], other[wrong]
    if not y.size:
        return
    # unsigned 64-bit arithmetic is exact even for a difference of 64 bits
    wide = np.dtype("<u8")
    up, down = y.astype(wide, casting="unsafe"), x.astype(wide, casting="unsafe")
    error = np.where(x > y, down - up, up - down)
    found.max_absolute = max(found.max_absolute, int(error.max()))
    with np.errstate(all="ignore"):
        size = np.abs(y.astype(np.float64))
        found.max_relative = max(found.max_relative, _largest(error.astype(np.float64) / size, size > 0))


def _largest(errors: NDArray[np.float64], where: NDArray[np.bool_]) -> float:
    return min(float(np.max(errors, initial=0.0, where=where)), _LARGEST)


def _word(tensor: Tensor, place: int) -> str:
    dtype = _storage(tensor.datatype)
    values = np.frombuffer(tensor.view, dtype, 1, place * dtype.itemsize)
    number = _numbers(values, tensor.datatype)[0].item()
    return repr(bool(number) if tensor.datatype is Datatype.BOOL else number)


def _compare_bytes(expected: Tensor, actual: Tensor) -> TensorDiff:
    found: Elements = walk(expected.view, actual.view)
    if not found.different:
        return TensorDiff(expected.name, None, expected.count)
    return TensorDiff(
        expected.name,
        Fault.VALUES,
        expected.count,
        found.different,
        index=tuple(int(place) for place in np.unravel_index(found.first, expected.shape)),
        byte=found.byte,
        expected=f"{found.lengths[0]} bytes",
        actual=f"{found.lengths[1]} bytes",
    )
