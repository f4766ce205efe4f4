"""What servers are asked for whose answers have no names."""

from __future__ import annotations

import pytest

from interlingua.runtime.upstream.unnamed import naming_all
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Signature,
    TensorSpec,
)

BOTH = Signature((), tuple(TensorSpec(name, Datatype.FP32, (-1,)) for name in ("a", "b")))


def asking(*names: str) -> InferRequest:
    return InferRequest("m", (), tuple(map(RequestedOutput, names)))


@pytest.mark.parametrize("request_", [asking("b", "a"), asking("b"), asking(), InferRequest("m", ())])
def test_every_output_is_named_in_signature_order(request_: InferRequest) -> None:
    assert [output.name for output in naming_all(request_, BOTH).outputs or ()] == ["a", "b"]


def test_what_is_wanted_of_an_output_stays() -> None:
    chosen = InferRequest("m", (), (RequestedOutput("b", classification=3),))
    assert [output.classification for output in naming_all(chosen, BOTH).outputs or ()] == [0, 3]


def test_an_unknown_output_is_the_callers_mistake() -> None:
    with pytest.raises(InferenceError, match=r"no output 'c' \(there are: a, b\)") as caught:
        naming_all(asking("a", "c"), BOTH)
    assert caught.value.code is ErrorCode.INVALID_TENSOR


@pytest.mark.parametrize("signature", [None, Signature((), ())])
def test_a_choice_without_a_signature_is_refused(signature: Signature | None) -> None:
    with pytest.raises(InferenceError, match="output 'a' cannot be distinguished") as caught:
        naming_all(asking("a"), signature)
    assert caught.value.code is ErrorCode.UNSUPPORTED
    everything = InferRequest("m", ())
    assert naming_all(everything, signature) is everything
