"""The same mistakes for every datatype: requests that describe a tensor wrongly, whatever the dialect."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from interlingua.schemas import Datatype


@dataclass(frozen=True)
class Claim:
    """What a request says of its tensor. ``data`` is that of binary tensors: little-endian numbers, and strings after
    their lengths of 4 bytes."""

    datatype: Datatype
    data: bytes
    name: str = "INPUT0"
    shape: tuple[int, ...] = (2,)

    @property
    def model(self) -> str:
        """The model that echoes such tensors."""
        return f"identity_{self.datatype.value.lower()}"

    @property
    def values(self) -> list[Any]:
        """The whole elements of ``data``, of numbers."""
        found: list[Any] = np.frombuffer(self.data, self.datatype.dtype).tolist()
        return found


_STRINGS = struct.pack("<I1sI1s", 1, b"a", 1, b"b")


def right(datatype: Datatype) -> Claim:
    """Two elements."""
    numbers = _STRINGS if datatype is Datatype.BYTES else np.ones(2, datatype.dtype).tobytes()
    return Claim(datatype, numbers)


def _shaped(*shape: int) -> Callable[[Claim], Claim]:
    return lambda claim: replace(claim, shape=shape)


MISTAKES: Mapping[str, Callable[[Claim], Claim]] = {
    "an unknown name": lambda claim: replace(claim, name="Q"),
    "a name of another case": lambda claim: replace(claim, name="input0"),
    "no name": lambda claim: replace(claim, name=""),
    "the wrong rank": _shaped(1, 2),
    "a dimension too large": _shaped(3),
    "a dimension too small": _shaped(1),
    "a negative dimension": _shaped(-2),
    "2^31 elements": _shaped(2**31 - 1),
    "2^62 by 2^62": _shaped(2**62, 2**62),
    "no data": lambda claim: replace(claim, data=b""),
    "half the data": lambda claim: replace(claim, data=claim.data[: len(claim.data) // 2]),
    "a byte too few": lambda claim: replace(claim, data=claim.data[:-1]),
    "a byte too many": lambda claim: replace(claim, data=claim.data + b"\1"),
    "the data twice": lambda claim: replace(claim, data=2 * claim.data),
}


UNNAMED = ("no name",)
"""No mistake where inputs without names have the order of the model."""

BYTES_ALONE = ("a byte too few", "a byte too many")
"""Mistakes that only binary data can have."""


def claims(datatypes: Collection[Datatype], but: Collection[str] = ()) -> Iterator[tuple[str, str, Claim]]:
    """Every mistake for each of ``datatypes``, and a tensor of another one, each with a name and the model that gets it;
    ``but`` those that are none in a dialect."""
    others = islice(cycle(datatypes), 1, None)
    for datatype, other in zip(datatypes, others, strict=False):
        claim = right(datatype)
        for name, change in MISTAKES.items():
            if name not in but:
                yield f"{datatype.value} with {name}", claim.model, change(claim)
        yield f"{other.value} for {datatype.value}", claim.model, right(other)


NO_NUMBERS: Mapping[str, Any] = {
    "a text": ["a", "b"],
    "a null": [None, 1],
    "an object": [{}, 1],
    "a list and a number": [[1], 1],
    "ragged rows": [[1], [1, 2]],
}
"""Values of JSON that are no tensor of numbers."""


def numbers(datatype: Datatype) -> Iterator[tuple[str, list[Any]]]:
    """Values of JSON that are no numbers of ``datatype``."""
    yield from NO_NUMBERS.items()
    if datatype.dtype.kind in "iu":
        bounds = np.iinfo(datatype.dtype)
        yield "a number too large", [bounds.max + 1, 1]
        yield "a number too small", [bounds.min - 1, 1]
        yield "a fraction", [1.5, 1]
        yield "10^30", [10**30, 1]
    if datatype is not Datatype.BOOL:
        yield "a boolean", [True, 1]
