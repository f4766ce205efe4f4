"""The values of the matrix: of each datatype those that go wrong first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Datatype, Tensor

FLOATS = frozenset({Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64})

_BITS = {
    # largest, -largest, 1, -0, the smallest, the smallest normal, infinities
    Datatype.FP16: ("<u2", [0x7BFF, 0xFBFF, 0x3C00, 0x8000, 0x0001, 0x0400, 0x7C00, 0xFC00]),
    Datatype.BF16: ("<u2", [0x7F7F, 0xFF7F, 0x3F80, 0x8000, 0x0001, 0x0080, 0x7F80, 0xFF80]),
    Datatype.FP32: ("<u4", [0x7F7FFFFF, 0xFF7FFFFF, 0x3DCCCCCD, 1 << 31, 1, 0x00800000, 0x7F800000, 0xFF800000]),
    Datatype.FP64: (
        "<u8",
        [0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x3FB999999999999A, 1 << 63, 1, 1 << 52, 0x7FF << 52, 0xFFF << 52],
    ),
}  # fmt: skip
_NANS = {
    # the usual one, one with a payload and a sign, a signalling one
    Datatype.FP16: [0x7E00, 0xFE01, 0x7C01],
    Datatype.BF16: [0x7FC0, 0xFFC1, 0x7F81],
    Datatype.FP32: [0x7FC00000, 0xFFC12345, 0x7F800001],
    Datatype.FP64: [0x7FF8 << 48, 0xFFF8123456789ABC, (0x7FF << 52) + 1],
}
TEXTS = [b"abc", b"", "\u4f60\u597d\0x \U0001f600".encode()]
BINARY = [b"\xff\xfe\x00", b"", b"\x80"]


def edges(datatype: Datatype) -> Tensor:
    """The input ``x`` with the edges of a datatype, without NaN; strings are UTF-8."""
    if datatype is Datatype.BYTES:
        return Tensor.from_numpy("x", np.array(TEXTS, object))
    if datatype in _BITS:
        kind, bits = _BITS[datatype]
        return Tensor.from_numpy("x", np.array(bits, kind).view(datatype.dtype))
    if datatype is Datatype.BOOL:
        return Tensor.from_numpy("x", np.array([True, False, True]))
    limits = np.iinfo(datatype.dtype)
    odd = [2**53 + 1] if limits.bits == 64 else []  # what a double rounds
    return Tensor.from_numpy("x", np.array([limits.min, limits.max, 0, 1, *odd], datatype.dtype))


def nans(datatype: Datatype) -> Tensor:
    """The input ``x`` with several NaNs."""
    kind = _BITS[datatype][0]
    return Tensor.from_numpy("x", np.array(_NANS[datatype], kind).view(datatype.dtype))


def binary() -> Tensor:
    """The input ``x`` with strings that are no text."""
    return Tensor.from_numpy("x", np.array(BINARY, object))


def nothing(datatype: Datatype) -> Tensor:
    """The input ``x`` without elements."""
    return Tensor.from_numpy("x", np.empty(0, datatype.dtype), datatype)


def same_values(wide: Tensor, narrow: Tensor) -> bool:
    """Whether a tensor in a wider datatype has exactly the values of another."""
    with np.errstate(invalid="ignore"):  # ml_dtypes minds NaN
        back: NDArray[Any] = narrow.numpy().astype(wide.datatype.dtype)
    if wide.datatype in FLOATS and narrow.datatype in FLOATS:
        return wide.shape == narrow.shape and back.tobytes() == wide.numpy().tobytes()
    return wide.shape == narrow.shape and bool((back == wide.numpy()).all())


MADE: Mapping[Datatype, Any] = {
    datatype: np.array([0, 1, 2]).astype(ml_dtypes.bfloat16 if datatype is Datatype.BF16 else datatype.dtype)
    for datatype in Datatype
    if datatype is not Datatype.BYTES
}
"""What ``make_D`` makes of 0, 1 and 2."""
