"""What one cell of the matrix tries out. Every check sends real requests and gives the outcome that it saw.

A check that finds neither the outcome that is predicted nor any that there could be fails by itself: values
that differ, an error of another code or one that does not name what it is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Tensor,
)
from interlingua.translator.fidelity import tensors
from interlingua.translator.fidelity.parties import Party, reported
from interlingua.translator.fidelity.verdict import Outcome, Verdict
from tests.e2e import matrix_values as values
from tests.e2e.matrix_models import NOT_EVERYWHERE, SUBJECTS
from tests.e2e.matrix_world import World, label


@dataclass
class Cell:
    """One caller before one target."""

    world: World
    caller: Party
    target: Party

    def ask(self, subject: str, *inputs: Tensor, blind: bool = False, **fields: Any) -> InferResponse:
        """The caller asks the target's model; ``blind``: without knowing its signature. Raises."""
        request = InferRequest(label(self.target, subject), inputs, **fields)
        return self.world.infer(self.caller, request, None if blind else SUBJECTS[subject])

    def refusal(self, subject: str, *inputs: Tensor, **fields: Any) -> InferenceError:
        """The error that the caller gets."""
        with pytest.raises(InferenceError) as caught:
            self.ask(subject, *inputs, **fields)
        return caught.value


def _refused(cell: Cell, verdicts: Iterable[Verdict], subject: str, given: Tensor, *names: str) -> Outcome:
    """That a request is refused as one of ``verdicts`` says, in words that have ``names`` and the dialect's."""
    error = cell.refusal(subject, given)
    words = error.message.lower()
    assert any(each.code is error.code and each.by.partition("/")[0] in words for each in verdicts), error
    assert all(name.lower() in words for name in names), error
    return Outcome.REFUSED


NUMBERS = Tensor.from_numpy("x", np.array([1, 2], np.int32))
FLOATS = Tensor.from_numpy("x", np.array([0.5, 2, 1], np.float32))


# --- tensors


def tensor_sent(cell: Cell, datatype: Datatype) -> Outcome:
    """A tensor on its way to the model, and back."""
    verdict = tensors.sent(cell.caller, cell.target, datatype)
    if verdict.outcome is Outcome.ABSENT:
        return Outcome.ABSENT
    subject, given = f"same_{datatype.value}", values.edges(datatype)
    if verdict.outcome is Outcome.REFUSED:
        both = (f"'{cell.caller.dialect}'",) if cell.caller.capability.carries(datatype) else ()
        return _refused(cell, [verdict], subject, given, "'x'", datatype.value, *both)
    for tensor in (given, values.nothing(datatype)):
        (got,) = cell.ask(subject, tensor).outputs
        assert got == tensor.renamed("y")
    return _seen(cell, subject, given, given.renamed("y"), verdict)


def tensor_answered(cell: Cell, datatype: Datatype) -> Outcome:
    """A tensor on its way back alone."""
    verdict = tensors.answered(cell.caller, cell.target, datatype)
    if verdict.outcome is Outcome.ABSENT or datatype not in NOT_EVERYWHERE:
        return verdict.outcome  # seen with the former
    subject = f"make_{datatype.value}"
    given = Tensor.from_numpy("x", np.arange(3, dtype=np.float32))
    made = Tensor.from_numpy("y", values.MADE[datatype], datatype)
    if verdict.outcome is Outcome.REFUSED:
        verdicts = [verdict]
        if not cell.caller.capability.carries(datatype):  # it may be the first to notice
            code = reported(cell.caller, ErrorCode.UNREPRESENTABLE)
            verdicts.append(replace(verdict, code=code, by=cell.caller.name))
        return _refused(cell, verdicts, subject, given, "'y'", datatype.value)
    assert cell.ask(subject, given).outputs == (made,)
    return _seen(cell, subject, given, made, verdict)


def _seen(cell: Cell, subject: str, given: Tensor, made: Tensor, verdict: Verdict) -> Outcome:
    """What a caller sees who does not know of which datatype the model is."""
    if not cell.caller.capability.widened:
        return Outcome.EXACT
    (got,) = cell.ask(subject, given, blind=True, outputs=(RequestedOutput("y"),)).outputs
    if got == made:
        return Outcome.EXACT
    assert got.datatype is verdict.datatype and values.same_values(got, made), got
    return Outcome.WIDENED


def binary(cell: Cell) -> Outcome:
    """Strings that are no text."""
    verdict = tensors.binary(cell.caller, cell.target)
    if verdict.outcome is Outcome.ABSENT:
        return Outcome.ABSENT
    given = values.binary()
    if verdict.outcome is Outcome.REFUSED:
        error = cell.refusal("same_BYTES", given)
        assert error.code is verdict.code and "'x'" in error.message and "UTF-8" in error.message, error
        return Outcome.REFUSED
    assert cell.ask("same_BYTES", given).outputs == (given.renamed("y"),)
    return Outcome.EXACT


def payloads(cell: Cell) -> Outcome:
    """NaNs, of every float that gets there."""
    seen = set()
    for datatype in values.FLOATS:
        if tensors.sent(cell.caller, cell.target, datatype).outcome not in (Outcome.EXACT, Outcome.WIDENED):
            continue
        given = values.nans(datatype)
        (got,) = cell.ask(f"same_{datatype.value}", given).outputs
        with np.errstate(invalid="ignore"):  # ml_dtypes minds some of them
            assert np.isnan(got.numpy()).all() and got.shape == given.shape
        seen.add(Outcome.EXACT if got == given.renamed("y") else Outcome.DROPPED)
    (outcome,) = seen
    return outcome


# --- errors


def unknown_model(cell: Cell) -> None:
    """A model that the bridge does not have."""
    if not cell.caller.capability.many_models:
        return  # it cannot be named
    request = InferRequest("nobody", (NUMBERS,))
    with pytest.raises(InferenceError) as caught:
        cell.world.infer(cell.caller, request, SUBJECTS["same_INT32"])
    assert caught.value.code is ErrorCode.NOT_FOUND, caught.value


def unknown_there(cell: Cell, missing: str) -> None:
    """A model that the upstream does not have. Some tell that by their words alone, which are not everybody's."""
    if not cell.target.dialect or not cell.target.capability.many_models:
        return
    request = InferRequest(label(cell.target, missing), (replace(FLOATS, shape=(), data=FLOATS.view[:4]),))
    with pytest.raises(InferenceError) as caught:
        cell.world.infer(cell.caller, request, SUBJECTS["scalar"])
    not_found = ErrorCode.NOT_FOUND
    assert caught.value.code in (not_found, reported(cell.caller, not_found)), caught.value


def failing_model(cell: Cell) -> None:
    """A model that fails at work: the error says so to everybody."""
    error = cell.refusal("fails", FLOATS)
    assert error.code is reported(cell.caller, reported(cell.target, ErrorCode.MODEL_FAILED)), error


def bad_input(cell: Cell) -> None:
    """A tensor with one dimension too many; who finds that out first depends on what each one knows."""
    error = cell.refusal("same_FP32", Tensor.from_numpy("x", np.zeros((2, 2), np.float32)))
    invalid = ErrorCode.INVALID_TENSOR
    likely = {reported(cell.caller, invalid), reported(cell.caller, reported(cell.target, invalid))}
    assert error.code in likely, error
    assert "'x'" in error.message, error
