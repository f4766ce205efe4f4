"""Labels and formats that a configuration adds to a signature."""

from __future__ import annotations

import logging

import pytest

from interlingua.runtime.upstream.attributes import Attributes
from interlingua.schemas import Datatype, Signature, TensorSpec
from interlingua.schemas.model_config import MODEL_CONFIG

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 3, 4, 4)),),
    (TensorSpec("p", Datatype.FP32, (-1, 2)), TensorSpec("q", Datatype.FP32, (-1, 2), labels=("c", "d"))),
    8,
)


def test_labels_are_added_and_others_stay() -> None:
    labelled = Attributes(labels={"p": ("a", "b")}).labelled("m", SIGNATURE)
    assert {spec.name: spec.labels for spec in labelled.outputs} == {"p": ("a", "b"), "q": ("c", "d")}
    assert (labelled.inputs, labelled.max_batch_size) == (SIGNATURE.inputs, 8)
    assert Attributes(formats={"x": "FORMAT_NCHW"}).labelled("m", SIGNATURE) is SIGNATURE


def test_formats_are_written_into_a_configuration() -> None:
    config = MODEL_CONFIG()
    config.input.add(name="x")
    config.input.add(name="other", format="FORMAT_NHWC")
    Attributes(formats={"x": "FORMAT_NCHW"}).write(config)
    assert [tensor.format for tensor in config.input] == [2, 1]


def test_formats_are_a_configuration_where_there_is_none() -> None:
    config = MODEL_CONFIG.FromString(Attributes(formats={"x": "FORMAT_NHWC"}).stated())
    assert [(tensor.name, tensor.format) for tensor in config.input] == [("x", 1)]
    assert Attributes(labels={"p": ("a",)}).stated() == b""


def test_attributes_of_nothing_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Attributes({"nothing": ("a",)}, {"none": "FORMAT_NCHW"}).labelled("m", SIGNATURE)
    (record,) = caplog.records
    assert record.facts == {"model": "m", "keys": "labels.nothing, format.none"}  # type: ignore[attr-defined]
