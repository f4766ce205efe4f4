"""How a whole answer differs from the one that was expected: outputs, responses of a stream, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from interlingua.schemas import InferenceError, InferResponse, Tensor
from interlingua.translator.diff.tensors import Fault, TensorDiff, Tolerance, compare_tensors


class Answer(Protocol):
    """What came back: responses, one or those of a stream, and the error that came instead or ended them."""

    @property
    def responses(self) -> Sequence[InferResponse]: ...

    @property
    def error(self) -> InferenceError | None: ...


@dataclass(frozen=True, slots=True)
class AnswerDiff:
    """How two answers differ. ``outputs`` has every output of either, equal ones too, response by response;
    ``failures`` are the differences that are no output's, by kind, and in words (``failed``: only the actual
    answer did, ``answered``: only the expected one had failed, ``code``: both failed, in other ways,
    ``responses``: a stream has fewer or more of them)."""

    outputs: tuple[TensorDiff, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def equal(self) -> bool:
        """Whether there is no difference beyond the tolerance."""
        return not self.failures and all(output.fault is None for output in self.outputs)


def compare_answers(expected: Answer, actual: Answer, tolerance: Tolerance) -> AnswerDiff:
    """How ``actual`` differs from ``expected``. Ids, parameters and versions are the model's own affair, and
    so is a last response without outputs, which tells only that a stream is over. Of failures the codes
    count: words are each server's own."""
    right, other = _telling(expected), _telling(actual)
    outputs: list[TensorDiff] = []
    failures: list[tuple[str, str]] = []
    for number, (one, another) in enumerate(zip(right, other, strict=False)):
        failures += _failures(one.error, another.error, f"response {number}: ")
        if one.error is None and another.error is None:
            found = compare_outputs(one.outputs, another.outputs, tolerance)
            outputs += (replace(each, response=number) if number else each for each in found)
    failures += _failures(expected.error, actual.error)
    # an answer that broke off has fewer, and that is told already
    if len(right) != len(other) and not failures:
        failures.append(("responses", f"{len(other)} responses, expected {len(right)}"))
    return AnswerDiff(tuple(outputs), tuple(failures))


def compare_outputs(
    expected: Sequence[Tensor], actual: Sequence[Tensor], tolerance: Tolerance
) -> Iterator[TensorDiff]:
    """How outputs differ, by name; their order does not count."""
    others = {tensor.name: tensor for tensor in actual}
    for tensor in expected:
        other = others.pop(tensor.name, None)
        if other is None:
            yield TensorDiff(tensor.name, Fault.MISSING, expected=_described(tensor))
        else:
            yield compare_tensors(tensor, other, tolerance)
    for tensor in others.values():
        yield TensorDiff(tensor.name, Fault.EXTRA, actual=_described(tensor))


def _telling(answer: Answer) -> list[InferResponse]:
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
