"""The highest values of an output with their places and labels, which clients may ask for instead of it.

The ranking is the same in every dialect that has one, so that a model behind an upstream is ranked
here as one of our own. How a rank is written belongs to the dialects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Datatype, Tensor, invalid_tensor

_RANKED = frozenset(Datatype) - {Datatype.BOOL, Datatype.FP16, Datatype.BF16, Datatype.BYTES}


class Ranked(NamedTuple):
    """A class: its place in the flat entry, its value there, and its label (empty for none)."""

    place: int
    value: float
    label: str


def check_ranked(output: str, datatype: Datatype) -> None:
    """Raise INVALID_TENSOR where values of ``datatype`` are not ranked: BOOL, BYTES, half floats."""
    if datatype not in _RANKED:
        raise invalid_tensor(
            f"class result not available for output '{output}' due to unsupported type '{datatype.value}'"
        )


def classify(tensor: Tensor, count: int, labels: Sequence[str], *, batched: bool) -> list[list[Ranked]]:
    """The ``count`` highest values of each entry of the batch, or of the whole tensor where its model
    takes no batches; fewer where there are not as many.

    Highest first; of equal values the first one comes first, and NaN ranks lowest. Raises as
    :func:`check_ranked`.
    """
    check_ranked(tensor.name, tensor.datatype)
    values = tensor.numpy()
    entries = len(values) if batched and values.ndim else 1
    if not values.size:
        return [[] for _ in range(entries)]
    return [
        [
            Ranked(int(index), row[index].item(), labels[index] if index < len(labels) else "")
            for index in _highest(row, count)
        ]
        for row in values.reshape(entries, -1)
    ]


def _highest(values: NDArray[Any], count: int) -> NDArray[np.intp]:
    """The places of the ``count`` highest of ``values``, one-dimensional."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -np.inf, values)
    count = min(count, len(values))
    # sorting what is below the last rank would be in vain
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    places = np.flatnonzero(values >= threshold)
    # a stable sort puts equals in order, but lowest first: hence backwards in and out
    order = np.argsort(values[places][::-1], kind="stable")[::-1]
    return places[len(places) - 1 - order][:count]
