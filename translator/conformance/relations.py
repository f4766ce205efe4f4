"""Relations between outputs and inputs, inferred from a few answers.

If an output is an input, or the sum or difference of two, checks can compare every bit. A relation is
inferred if most elements fit it; the checks then report the elements that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Datatype, InferResponse, Signature, Tensor

_NUMBERS = "iuf"

_MOST = 0.5
"""The share of elements that must fit."""

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Relation:
    """``output`` is ``kind`` of the tensors ``of``: `echo` of one, `sum` or `difference` of two."""

    output: str
    kind: str
    of: tuple[str, ...]

    def expected(self, inputs: Tensors) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            return _KINDS[self.kind](*(inputs[name].numpy() for name in self.of))

    def __str__(self) -> str:
        return f"{self.output} is the {self.kind} of {' and '.join(self.of)}"


_KINDS: Mapping[str, Callable[..., NDArray[Any]]] = {
    "echo": lambda one: one,
    "sum": lambda one, other: (one + other).astype(one.dtype),
    "difference": lambda one, other: (one - other).astype(one.dtype),
}


def find_relations(
    signature: Signature, requests: Sequence[Sequence[Tensor]], answers: Sequence[InferResponse]
) -> tuple[Relation, ...]:
    """At most one relation for each output, from ``answers`` to the inputs of ``requests``."""
    pairs = [
        ({tensor.name: tensor for tensor in inputs}, {tensor.name: tensor for tensor in answer.outputs})
        for inputs, answer in zip(requests, answers, strict=True)
    ]
    found = []
    for output in signature.outputs:
        fits = ((_fit(relation, pairs), relation) for relation in _candidates(signature, output.name))
        best = max(fits, default=None, key=lambda scored: scored[0])
        if best is not None and best[0] > _MOST:
            found.append(best[1])
    return tuple(found)


def same_values(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements of two arrays of one shape are bitwise equal; all NaNs are equal."""
    if one.dtype == object or one.dtype.kind not in "fV":
        return np.asarray(one == other, dtype=bool)
    bits = f"u{one.dtype.itemsize}"
    equal = np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits)
    both_nan = np.isnan(one.astype(np.float64)) & np.isnan(other.astype(np.float64))
    return np.asarray(equal | both_nan, dtype=bool)


def _candidates(signature: Signature, output: str) -> Iterator[Relation]:
    kind = signature.output_names[output].datatype
    inputs = [spec.name for spec in signature.inputs if spec.datatype is kind]
    for name in inputs:
        yield Relation(output, "echo", (name,))
    if kind is Datatype.BYTES or kind.dtype.kind not in _NUMBERS:
        return
    for one in inputs:
        for other in inputs:
            if one != other:
                yield Relation(output, "sum", (one, other))
                yield Relation(output, "difference", (one, other))


def _fit(relation: Relation, pairs: Sequence[tuple[Tensors, Tensors]]) -> float:
    fitting = total = 0
    for inputs, outputs in pairs:
        if relation.output not in outputs or any(name not in inputs for name in relation.of):
            continue
        if len({inputs[name].shape for name in relation.of}) > 1:
            continue
        right = relation.expected(inputs)
        total += right.size
        given = outputs[relation.output].numpy()
        if given.shape == right.shape and given.dtype == right.dtype:
            fitting += int(same_values(given, right).sum())
    return fitting / total if total else 0.0
