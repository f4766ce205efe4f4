"""Elements of a tensor as values of JSON that a browser reads without loss."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np

from interlingua.schemas import Datatype, Tensor
from interlingua.schemas.tensor import packed_elements

_MAX_SAFE = (1 << 53) - 1
"""The largest integer that a number of JavaScript holds exactly: larger ones are sent as text."""


def shown(tensor: Tensor, most: int) -> list[Any]:
    """The first ``most`` elements, row-major: numbers; text for NaN, infinities, integers beyond 2^53 and
    BYTES, in which U+FFFD takes the place of what is not UTF-8."""
    if tensor.datatype is Datatype.BYTES:
        return [each.decode(errors="replace") for each in islice(packed_elements(tensor.view), most)]
    array = tensor.numpy().reshape(-1)[:most]
    if array.dtype.kind in "fV":
        numbers = array.astype(np.float64)
        return [value if math.isfinite(value) else str(value) for value in numbers.tolist()]
    if array.dtype.itemsize == 8:
        return [value if abs(value) <= _MAX_SAFE else str(value) for value in array.tolist()]
    found: list[Any] = array.tolist()
    return found
