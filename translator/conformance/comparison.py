"""Compares tensors with earlier or computed ones; errors show the first element that differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Datatype, InferResponse, Tensor
from interlingua.translator.conformance.errors import ViolationError, expect
from interlingua.translator.conformance.relations import Relation, same_values
from interlingua.translator.conformance.server import ServerUnderTest

TOLERANCE = 1e-5
"""Multithreaded models sum floats in any order."""

HALVES = frozenset({Datatype.FP16, Datatype.BF16})
"""Floats of 16 bits, which have large rounding errors."""

_TOLERANCE_OF_HALVES = 2e-2


def expect_same(
    server: ServerUnderTest,
    right: InferResponse,
    have: InferResponse,
    what: str,
    tolerance: float = TOLERANCE,
) -> None:
    """``have`` has the outputs of ``right``; floats may differ by ``tolerance`` of the largest."""
    others = {tensor.name: tensor for tensor in have.outputs}
    for tensor in right.outputs:
        expect(tensor.name in others, f"{what}: output '{tensor.name}' is missing", server.last)
        one, other = tensor.numpy(), others[tensor.name].numpy()
        expect(
            one.shape == other.shape and one.dtype == other.dtype,
            f"{what}: output '{tensor.name}' is {other.dtype} {list(other.shape)}, it was {one.dtype} "
            f"{list(one.shape)}",
            server.last,
        )
        equal = same_values(one, other)
        if tensor.datatype.dtype.kind in "fV" and not equal.all():
            equal |= _close(one.astype(np.float64), other.astype(np.float64), tensor.datatype, tolerance)
        if not equal.all():
            at = int(np.flatnonzero(~equal.ravel())[0])
            raise ViolationError(
                f"{what}: output '{tensor.name}' differs in {int((~equal).sum())} of {equal.size} elements, "
                f"the first at {at}: {_element(other, at)}, not {_element(one, at)}",
                server.last,
            )


def expect_right(
    server: ServerUnderTest, relations: Sequence[Relation], given: Sequence[Tensor], response: InferResponse
) -> None:
    """The outputs of ``response`` are what ``relations`` make of ``given``, bit for bit."""
    by_name = {tensor.name: tensor for tensor in given}
    outputs = {tensor.name: tensor for tensor in response.outputs}
    for relation in relations:
        right = relation.expected(by_name)
        expect(relation.output in outputs, f"output '{relation.output}' is missing", server.last)
        have = outputs[relation.output].numpy()
        expect(
            have.shape == right.shape and have.dtype == right.dtype,
            f"{relation}, but is {have.dtype} {list(have.shape)} for {right.dtype} {list(right.shape)}",
            server.last,
        )
        wrong = np.flatnonzero(~same_values(have, right).ravel())
        if wrong.size:
            at = int(wrong[0])
            raise ViolationError(
                f"{relation}, but {wrong.size} of {right.size} elements are not, the first at {at}: "
                f"{_element(have, at)}, not {_element(right, at)}",
                server.last,
            )


def is_text(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def _element(array: NDArray[Any], at: int) -> str:
    return repr(array.ravel()[at : at + 1].tolist()[0])


def _close(
    one: NDArray[np.float64], other: NDArray[np.float64], datatype: Datatype, tolerance: float
) -> NDArray[np.bool_]:
    if not tolerance:
        return np.zeros(one.shape, bool)
    if datatype in HALVES:
        tolerance = max(tolerance, _TOLERANCE_OF_HALVES)
    finite = np.abs(one[np.isfinite(one)])
    largest = float(finite.max()) if finite.size else 0.0
    return np.asarray(np.isclose(one, other, tolerance, tolerance * largest, equal_nan=True))
