"""How a whole answer differs from the expected one: outputs, streamed responses, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from interlingua.schemas import InferenceError, InferResponse, Tensor
from interlingua.translator.diff.tensors import Fault, TensorDiff, Tolerance, compare_tensors


class ComparableAnswer(Protocol):
    """One response or a stream of them, and the error that replaced or ended them."""

    @property
    def responses(self) -> Sequence[InferResponse]: ...

    @property
    def error(self) -> InferenceError | None: ...


@dataclass(frozen=True, slots=True)
class AnswerDiff:
    """How two answers differ. ``outputs`` has every output of either, equal ones included, response by
    response. ``failures`` are (kind, message) pairs for differences outside outputs: ``failed`` (only the
    actual answer is an error), ``answered`` (only the expected one is), ``code`` (different errors),
    ``responses`` (different numbers of them)."""

    outputs: tuple[TensorDiff, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def equal(self) -> bool:
        return not self.failures and all(output.fault is None for output in self.outputs)


def compare_answers(expected: ComparableAnswer, actual: ComparableAnswer, tolerance: Tolerance) -> AnswerDiff:
    """How ``actual`` differs from ``expected``. Ignores ids, parameters, versions, a final response without
    outputs (it only ends a stream), and error messages: only codes count."""
    right, other = _significant(expected), _significant(actual)
    outputs: list[TensorDiff] = []
    failures: list[tuple[str, str]] = []
    for number, (one, another) in enumerate(zip(right, other, strict=False)):
        failures += _failures(one.error, another.error, f"response {number}: ")
        if one.error is None and another.error is None:
            found = compare_outputs(one.outputs, another.outputs, tolerance)
            outputs += (replace(each, response=number) if number else each for each in found)
    failures += _failures(expected.error, actual.error)
    # a failed answer has fewer; that is reported already
    if len(right) != len(other) and not failures:
        failures.append(("responses", f"{len(other)} responses, expected {len(right)}"))
    return AnswerDiff(tuple(outputs), tuple(failures))


def compare_outputs(
    expected: Sequence[Tensor], actual: Sequence[Tensor], tolerance: Tolerance
) -> Iterator[TensorDiff]:
    """How outputs differ, matched by name, in any order."""
    others = {tensor.name: tensor for tensor in actual}
    for tensor in expected:
        other = others.pop(tensor.name, None)
        if other is None:
            found = TensorDiff(tensor.name, Fault.MISSING, expected=_described(tensor))
        else:
            found = compare_tensors(tensor, other, tolerance)
        yield found if found.fault is None else replace(found, sides=(tensor, other))
    for tensor in others.values():
        yield TensorDiff(tensor.name, Fault.EXTRA, actual=_described(tensor), sides=(None, tensor))


def _significant(answer: ComparableAnswer) -> list[InferResponse]:
    return [
        response for response in answer.responses if response.outputs or response.error or not response.final
    ]


def _failures(
    expected: InferenceError | None, actual: InferenceError | None, where: str = ""
) -> Iterator[tuple[str, str]]:
    if expected is None and actual is not None:
        yield "failed", f"{where}{actual.code.name}: {actual.message}"
    elif expected is not None and actual is None:
        yield "answered", f"{where}answered, expected {expected.code.name}: {expected.message}"
    elif expected is not None and actual is not None and expected.code is not actual.code:
        yield "code", f"{where}{actual.code.name}: {actual.message}, expected {expected.code.name}"


def _described(tensor: Tensor) -> str:
    return f"{tensor.datatype.value} {list(tensor.shape)}"
