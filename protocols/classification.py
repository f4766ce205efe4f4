"""The highest values of an output with their places and labels, which clients may request instead of it. The
ranking is the same for all dialects, and for local and upstream models."""

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
    value: int | float
    label: str

    @property
    def text(self) -> str:
        """As Triton writes it: ``value:index[:label]``, an integer exactly, a float with six decimals."""
        value = self.value if isinstance(self.value, int) else f"{self.value:f}"
        return f"{value}:{self.place}{':' * bool(self.label)}{self.label}"


def check_ranked(output: str, datatype: Datatype) -> None:
    """Raise INVALID_TENSOR if values of ``datatype`` are not ranked: BOOL, BYTES, half floats."""
    if datatype not in _RANKED:
        raise invalid_tensor(
            f"class result not available for output due to unsupported type '{datatype.value}' of '{output}'"
        )


def classify(tensor: Tensor, count: int, labels: Sequence[str], *, batched: bool) -> list[list[Ranked]]:
    """The ``count`` highest values, or all if there are fewer, of each entry of the batch, or of the whole
    tensor of a model without batches. Highest first, equal values in order, NaN lowest. Raises as
    :func:`check_ranked`."""
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
    # sort only the values above the last rank
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    places = np.flatnonzero(values >= threshold)
    # a stable sort keeps the order of equals, but lowest first, so reverse twice
    order = np.argsort(values[places][::-1], kind="stable")[::-1]
    return places[len(places) - 1 - order][:count]
