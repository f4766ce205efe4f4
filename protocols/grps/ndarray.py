"""The ``ndarray`` of a request in JSON: nested arrays of numbers to one FP32 tensor without a name.

Regular nesting of any depth, numbers within the range of FP32. The messages are those of the C++ server.
"""

from __future__ import annotations

from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.protocols.grps.json_numbers import NONFINITE
from interlingua.protocols.grps.json_quirks import JsonQuirks
from interlingua.protocols.grps.message import GenericTensor
from interlingua.protocols.json_document import LazyArray
from interlingua.schemas import malformed

_FLOAT32 = 7
_DOUBLE = np.dtype("<f8")


def read_ndarray(value: Any, quirks: JsonQuirks) -> GenericTensor:
    """The JSON ``value`` of the member ``ndarray``: a number, or arrays of them. Raises MALFORMED."""
    if isinstance(value, LazyArray):
        wide = value.numbers("d", _DOUBLE)
        if wide is not None and wide.size:
            return GenericTensor("", _FLOAT32, value.shape, _floats(wide))
        value = value.tolist()
    if type(value) is dict or (type(value) is str and value not in NONFINITE):
        raise malformed("NDArray is not number or array.")
    shape, leaves = _flatten(value)
    if not leaves and not quirks.empty_arrays:
        raise malformed("Parse NDArray failed: NDArray some array size <= 0.")
    return GenericTensor("", _FLOAT32, shape, _floats(np.array(_numbers(leaves, quirks), _DOUBLE)))


def _flatten(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The sides of nested lists, and the elements of the innermost ones."""
    shape: list[int] = []
    level = [value]
    while list in (types := set(map(type, level))):
        sides = {len(row) if type(row) is list else -1 for row in level}
        if len(types) > 1 and not types <= {list, int, float}:
            raise malformed("Parse NDArray failed: NDArray some array is not a number or array.")
        if len(sides) > 1:
            raise malformed("Parse NDArray failed: NDArray some array size not match.")
        shape += sides
        level = list(chain.from_iterable(level))
    return tuple(shape), level


def _numbers(leaves: list[Any], quirks: JsonQuirks) -> list[Any]:
    plain = [leaf for leaf in leaves if not (type(leaf) is str and leaf in NONFINITE)]
    types = set(map(type, plain))
    if not types <= {int, float} and not (quirks.booleans and types <= {int, float, bool}):
        raise malformed("Parse NDArray failed: NDArray some array is not a number or array.")
    if not quirks.nan_tokens and not all(map(isfinite, plain)):
        raise malformed(
            "Parse NDArray failed: NDArray some array is not a number or array: it has a bare NaN"
        )
    return leaves if len(plain) == len(leaves) else [NONFINITE.get(leaf, leaf) for leaf in leaves]


def _floats(wide: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        floats = wide.astype("<f4")
    beyond = np.isinf(floats) & np.isfinite(wide)
    if beyond.any():
        raise malformed(
            f"ndarray: element {int(beyond.argmax())} ({wide[beyond][0]}) is out of range for FP32"
        )
    return floats
