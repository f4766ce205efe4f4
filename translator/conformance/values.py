"""Generated tensors that fit a signature: Hypothesis strategies.

A free dimension has the same size at the same position of all inputs of a request, as most models with
several inputs need. BYTES are short decimal numbers by default: models of text, of numeric text and of bytes
take them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from interlingua.schemas import Datatype, Signature, Tensor, TensorSpec, element_count, pack_bytes

_LARGEST_SIDE = 4
_LARGEST_BATCH = 4
_WORDS = (b"a\0b", b"\0", b"longer than most" * 20, "\u00e9\u20ac\U0001f600".encode(), b"")
"""Text that implementations often truncate, escape or count wrong."""

_WIDTHS = (7, 8, 15, 16, 24, 31, 32, 53, 63)
"""Widths of integer types and of float mantissas."""

_FLOATS = (Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64)

Contents = Callable[[Datatype, int], st.SearchStrategy[bytes]]
"""``contents(datatype, count)``: the bytes of that many elements."""


@st.composite
def inputs(
    draw: st.DrawFn, signature: Signature, contents: Contents, batch: int | None = None, min_side: int = 1
) -> tuple[Tensor, ...]:
    """One tensor for each input of ``signature``. ``batch`` is the batch size of a model with batches; drawn
    if None."""
    sides: dict[int, int] = {}

    def side(place: int) -> int:
        if place not in sides:
            if place == 0 and signature.max_batch_size:
                limit = min(signature.max_batch_size, _LARGEST_BATCH)
                sides[place] = draw(st.integers(1, limit)) if batch is None else batch
            else:
                sides[place] = draw(st.integers(min_side, _LARGEST_SIDE))
        return sides[place]

    def tensor(spec: TensorSpec) -> Tensor:
        shape = tuple(side(place) if size < 0 else size for place, size in enumerate(spec.shape))
        data = draw(contents(spec.datatype, element_count(shape)))
        return Tensor.checked(spec.name, spec.datatype, shape, data)

    return tuple([tensor(spec) for spec in signature.inputs])


def usual(datatype: Datatype, count: int) -> st.SearchStrategy[bytes]:
    """Moderate values that any model accepts."""
    if datatype is Datatype.BYTES:
        return _packed(st.integers(0, 999).map(lambda number: str(number).encode()), count)
    if datatype is Datatype.BOOL:
        return _numbers(datatype, st.integers(0, 1), count)
    if datatype in _FLOATS:
        # quarters are exact in every float type
        return _numbers(datatype, st.integers(-200, 200).map(lambda number: number / 4), count)
    low = 0 if datatype.dtype.kind == "u" else -100
    return _numbers(datatype, st.integers(low, 100), count)


def extreme(finite: bool, text: bool) -> Contents:
    """Values up to the limits of each datatype: NaN and infinity unless ``finite``; BYTES are arbitrary,
    with ``text`` arbitrary UTF-8."""

    def contents(datatype: Datatype, count: int) -> st.SearchStrategy[bytes]:
        if datatype is Datatype.BYTES:
            words = st.text(max_size=6).map(str.encode) if text else st.binary(max_size=6)
            return _packed(st.one_of(words, st.sampled_from(_WORDS)), count)
        if datatype is Datatype.BOOL:
            return _numbers(datatype, st.integers(0, 1), count)
        if datatype in _FLOATS:
            return _numbers(datatype, _floats(datatype, finite), count)
        return _numbers(datatype, _integers(datatype), count)

    return contents


def _integers(datatype: Datatype, parts: int = 1) -> st.SearchStrategy[int]:
    """Values of an integer datatype, or of the ``parts``-th part of its range around 0, with emphasis on the
    limits of narrower types and of floats."""
    limits = np.iinfo(datatype.dtype)
    low, high = -(-int(limits.min) // parts), int(limits.max) // parts
    ends = {sign * (1 << bits) + more for bits in _WIDTHS for sign in (-1, 1) for more in (-1, 0, 1)}
    corners = sorted((end for end in {low, high, *ends} if low <= end <= high), key=abs, reverse=True)
    return st.one_of(st.integers(low, high), st.sampled_from(corners))


def _floats(datatype: Datatype, finite: bool) -> st.SearchStrategy[float]:
    """Values of a float datatype, with emphasis on special ones."""
    special = [-0.0] if finite else [math.nan, -0.0, math.inf, -math.inf]
    if datatype is Datatype.BF16:
        # a range in which rounding never overflows
        numbers = st.integers(-(2**8), 2**8).map(lambda number: number * 2.0**100)
    elif datatype is Datatype.FP64:
        numbers = st.floats(allow_nan=False, allow_infinity=False)
    else:
        width: Literal[16, 32] = 16 if datatype is Datatype.FP16 else 32
        numbers = st.floats(width=width, allow_nan=False, allow_infinity=False)
    return st.one_of(numbers, st.sampled_from(special))


def halved(contents: Contents) -> Contents:
    """The same for integers of half the range, so that sums of two do not overflow."""

    def half(datatype: Datatype, count: int) -> st.SearchStrategy[bytes]:
        if datatype.dtype.kind not in "iu":
            return usual(datatype, count)
        return _numbers(datatype, _integers(datatype, parts=2), count)

    return half


def distinct(signature: Signature, number: int, batch: int = 1) -> tuple[Tensor, ...]:
    """Moderate inputs that differ for each ``number`` and from element to element."""
    found = []
    for place, spec in enumerate(signature.inputs):
        shape = tuple(
            (batch if at == 0 and signature.max_batch_size else 3) if size < 0 else size
            for at, size in enumerate(spec.shape)
        )
        count = element_count(shape)
        numbers = (np.arange(count) * 7 + number * 13 + place * 5 + 1) % 97
        if spec.datatype is Datatype.BYTES:
            data = pack_bytes(str(value).encode() for value in numbers.tolist())
        else:
            data = numbers.astype(spec.datatype.dtype).tobytes()
        found.append(Tensor.checked(spec.name, spec.datatype, shape, data))
    return tuple(found)


def _packed(words: st.SearchStrategy[bytes], count: int) -> st.SearchStrategy[bytes]:
    return st.lists(words, min_size=count, max_size=count).map(pack_bytes)


def _numbers(datatype: Datatype, numbers: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[bytes]:
    """Long tensors are mostly zeros with a few drawn elements: each draw costs time."""
    wide = np.dtype(object) if datatype.dtype.kind in "iu" else np.dtype(np.float64)
    filled = arrays.arrays(wide, count, elements=numbers, fill=st.just(0) if count > 8 else st.nothing())
    return filled.map(lambda values: _narrowed(values, datatype))


def _narrowed(values: NDArray[Any], datatype: Datatype) -> bytes:
    with np.errstate(all="ignore"):
        return values.astype(datatype.dtype).tobytes()
