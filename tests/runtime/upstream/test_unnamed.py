"""What servers get to which tensors are positions."""

from __future__ import annotations

import pytest

from interlingua.runtime.upstream.unnamed import in_signature_order
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)

BOTH = Signature((), tuple(TensorSpec(name, Datatype.FP32, (-1,)) for name in ("a", "b")))


def asking(*names: str) -> InferRequest:
    return InferRequest("m", (), tuple(map(RequestedOutput, names)))


@pytest.mark.parametrize("request_", [asking("b", "a"), asking("b"), asking(), InferRequest("m", ())])
def test_every_output_is_named_in_signature_order(request_: InferRequest) -> None:
    assert [output.name for output in in_signature_order(request_, BOTH).outputs or ()] == ["a", "b"]


def test_what_is_wanted_of_an_output_stays() -> None:
    chosen = InferRequest("m", (), (RequestedOutput("b", classification=3),))
    assert [output.classification for output in in_signature_order(chosen, BOTH).outputs or ()] == [0, 3]


def test_an_unknown_output_is_the_callers_mistake() -> None:
    with pytest.raises(InferenceError, match=r"no output 'c' \(there are: a, b\)") as caught:
        in_signature_order(asking("a", "c"), BOTH)
    assert caught.value.code is ErrorCode.INVALID_TENSOR


@pytest.mark.parametrize("signature", [None, Signature((), ())])
def test_a_choice_without_a_signature_is_refused(signature: Signature | None) -> None:
    with pytest.raises(InferenceError, match="output 'a' cannot be distinguished") as caught:
        in_signature_order(asking("a"), signature)
    assert caught.value.code is ErrorCode.UNSUPPORTED
    everything = InferRequest("m", ())
    assert in_signature_order(everything, signature).outputs is None


A, B, C = (Tensor.checked(name, Datatype.FP32, (1,), bytes(4)) for name in "abc")


def inputs(*required: bool) -> Signature:
    return Signature(
        tuple(
            TensorSpec(name, Datatype.FP32, (-1,), not each)
            for name, each in zip("abc", required, strict=False)
        ),
        BOTH.outputs,
    )


@pytest.mark.parametrize("given", [(A, B), (B, A)])
def test_inputs_are_in_signature_order_with_their_names(given: tuple[Tensor, ...]) -> None:
    sent = in_signature_order(InferRequest("m", given), inputs(True, True))
    assert sent.inputs == (A, B)


def test_an_input_that_the_signature_lacks_comes_last() -> None:
    sent = in_signature_order(InferRequest("m", (C, B, A)), inputs(True, True))
    assert sent.inputs == (A, B, C)


@pytest.mark.parametrize(("given", "missing"), [((B,), "a"), ((A,), "b"), ((C, A), "b")])
def test_an_input_left_out_would_shift_others(given: tuple[Tensor, ...], missing: str) -> None:
    with pytest.raises(InferenceError, match=f"input '{missing}' is missing: .* by position") as caught:
        in_signature_order(InferRequest("m", given), inputs(True, True, True))
    assert caught.value.code is ErrorCode.INVALID_TENSOR


def test_an_input_that_the_server_reports_as_optional_may_be_left_out() -> None:
    sent = in_signature_order(InferRequest("m", (C, A)), inputs(True, False, True))
    assert sent.inputs == (A, C)


def test_several_inputs_of_unknown_order_are_refused() -> None:
    assert in_signature_order(InferRequest("m", (A,)), BOTH).inputs == (A,)
    with pytest.raises(InferenceError, match="input 'b' cannot be distinguished") as caught:
        in_signature_order(InferRequest("m", (B, A)), BOTH)
    assert caught.value.code is ErrorCode.UNSUPPORTED


def test_without_a_signature_the_order_of_inputs_is_the_callers() -> None:
    assert in_signature_order(InferRequest("m", (B, A)), None).inputs == (B, A)
