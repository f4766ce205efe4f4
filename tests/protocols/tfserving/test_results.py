"""The outputs of a model as classes and regressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interlingua.protocols.tfserving.results import classes_of, regressions_of
from interlingua.schemas import InferenceError, InferResponse, Signature, Tensor, TensorSpec
from tests.protocols.tfserving.exchange import MODELS

LABELS = np.array([["cat", "dog"]], object)
SCORES = np.array([[0.25, 0.75]], np.float32)


def response(**outputs: Any) -> InferResponse:
    return InferResponse("m", tuple(Tensor.from_numpy(name, array) for name, array in outputs.items()))


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"scores": SCORES}, [[("ant", 0.25), ("bee", 0.75)]]),
        ({"scores": np.ones((1, 3), np.float16)}, [[("", 1.0)] * 3]),
        ({"classes": LABELS}, [[("cat", 0.0), ("dog", 0.0)]]),
        ({"scores": SCORES, "classes": LABELS}, [[("cat", 0.25), ("dog", 0.75)]]),
        ({"probabilities": SCORES}, [[("", 0.25), ("", 0.75)]]),
    ],
)
def test_classes(outputs: dict[str, Any], expected: Any) -> None:
    labelled = MODELS["classes"] if outputs.get("scores", LABELS).shape == (1, 2) else Signature((), ())
    assert classes_of(response(**outputs), labelled, 1) == expected


def test_labels_are_those_of_the_only_output() -> None:
    spec = TensorSpec("p", MODELS["classes"].outputs[0].datatype, (-1, 2), labels=("a",))
    found = classes_of(response(p=SCORES), Signature((), (spec,)), 1)
    assert found == [[("a", 0.25), ("", 0.75)]]


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"a": SCORES, "b": SCORES}, "found 2"),
        ({"scores": SCORES[0]}, "but got .2."),
        ({"scores": SCORES.astype(np.float64)}, "Expected scores Tensor of DT_FLOAT. Got: DT_DOUBLE"),
        ({"scores": np.ones((2, 2), np.float32)}, "Expected scores output batch size of 1. Got: 2"),
        ({"classes": SCORES}, "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
        ({"scores": np.ones((1, 3), np.float32), "classes": LABELS}, "Got 2 vs. 3"),
        ({"classes": np.array([[b"\xff"]], object)}, "is not UTF-8"),
    ],
)
def test_refused_classes(outputs: dict[str, Any], text: str) -> None:
    with pytest.raises(InferenceError, match=text):
        classes_of(response(**outputs), Signature((), ()), 1)


def test_doubles_are_for_answers_that_carry_them() -> None:
    third = np.array([[1 / 3]])
    assert classes_of(response(scores=third), Signature((), ()), 1, doubles=True) == [[("", 1 / 3)]]
    assert regressions_of(response(y=third), 1, doubles=True) == [1 / 3]
    with pytest.raises(InferenceError, match="Got: DT_DOUBLE"):
        regressions_of(response(y=third), 1)


def test_regressions() -> None:
    assert regressions_of(response(outputs=SCORES.reshape(2), other=SCORES), 2) == [0.25, 0.75]
    assert regressions_of(response(y=SCORES.reshape(2, 1)), 2) == [0.25, 0.75]
    with pytest.raises(InferenceError, match="Expected output Tensor shape"):
        regressions_of(response(y=SCORES), 2)
