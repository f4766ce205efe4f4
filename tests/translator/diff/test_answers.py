"""Whole answers: outputs by name, streams response by response, failures by code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interlingua.schemas import ErrorCode, InferenceError, InferResponse, Tensor
from interlingua.translator.diff import Fault, Tolerance, compare_answers

EXACT = Tolerance()
BUSY = InferenceError(ErrorCode.OVERLOADED, "too busy")
GONE = InferenceError(ErrorCode.UNAVAILABLE, "gone")


@dataclass
class Came:
    """An answer."""

    responses: Sequence[InferResponse] = ()
    error: InferenceError | None = None


def tensor(name: str, *values: float) -> Tensor:
    return Tensor.from_numpy(name, np.array(values, np.float32))


def response(*outputs: Tensor, final: bool = True, error: InferenceError | None = None) -> InferResponse:
    return InferResponse("m", outputs, final=final, error=error)


def test_outputs_are_matched_by_name_in_any_order() -> None:
    one = Came([response(tensor("a", 1.0), tensor("b", 2.0))])
    other = Came([response(tensor("b", 2.0), tensor("a", 1.0))])
    found = compare_answers(one, other, EXACT)
    assert found.equal
    assert [(each.name, each.fault) for each in found.outputs] == [("a", None), ("b", None)]


def test_missing_and_extra_outputs() -> None:
    one = Came([response(tensor("a", 1.0), tensor("b", 2.0))])
    other = Came([response(tensor("a", 1.0), tensor("c", 2.0, 3.0))])
    found = compare_answers(one, other, EXACT)
    assert not found.equal
    told = [(each.name, each.fault, each.expected, each.actual) for each in found.outputs[1:]]
    assert told == [("b", Fault.MISSING, "FP32 [1]", ""), ("c", Fault.EXTRA, "", "FP32 [2]")]


def test_failures() -> None:
    fine = Came([response(tensor("a", 1.0))])
    assert compare_answers(
        Came(error=BUSY), Came(error=InferenceError(BUSY.code, "other words")), EXACT
    ).equal
    for one, other, kind in (
        (fine, Came(error=GONE), "failed"),
        (Came(error=GONE), fine, "answered"),
        (Came(error=GONE), Came(error=BUSY), "code"),
    ):
        found = compare_answers(one, other, EXACT)
        assert [failure[0] for failure in found.failures] == [kind]
        assert not found.outputs
        assert not found.equal


def test_streams_are_compared_response_by_response() -> None:
    steps = [response(tensor("a", float(step)), final=False) for step in range(3)]
    # the end may come with the last response, or by itself
    assert compare_answers(
        Came([*steps, response()]), Came([*steps[:2], response(tensor("a", 2.0))]), EXACT
    ).equal
    wrong = [*steps[:1], response(tensor("a", 7.0), final=False), *steps[2:]]
    found = compare_answers(Came(steps), Came(wrong), EXACT)
    assert [(each.response, each.fault) for each in found.outputs] == [
        (0, None),
        (1, Fault.VALUES),
        (2, None),
    ]
    short = compare_answers(Came(steps), Came(steps[:2]), EXACT)
    assert short.failures == (("responses", "2 responses, expected 3"),)
    broken = compare_answers(Came(steps), Came(steps[:2], GONE), EXACT)
    assert broken.failures == (("failed", "UNAVAILABLE: gone"),)


def test_responses_that_failed_inside_a_stream() -> None:
    fine, failed = response(tensor("a", 1.0), final=False), response(error=BUSY, final=False)
    found = compare_answers(Came([fine, failed, fine]), Came([fine, fine, fine]), EXACT)
    assert found.failures == (("answered", "response 1: answered, expected OVERLOADED: too busy"),)
    assert compare_answers(Came([fine, failed]), Came([fine, failed]), EXACT).equal
