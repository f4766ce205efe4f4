from __future__ import annotations

from typing import Any

import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import Datatype, Signature, TensorSpec
from interlingua.translator.config import parse
from interlingua.translator.config.models import ModelOptions
from interlingua.translator.probe.signatures import differences

TOLD = Signature(
    (TensorSpec("a", Datatype.FP32, (-1, 4)), TensorSpec("b", Datatype.INT64, (-1,), optional=True)),
    (TensorSpec("c", Datatype.UINT8, (-1, 2)),),
)


def model(**fields: Any) -> ModelOptions:
    import yaml

    return parse(
        yaml.safe_dump(
            {
                "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
                "upstreams": {"there": {"dialect": "oip", "transport": "http", "urls": ["a:1"]}},
                "models": {"m": {"upstream": "there", **fields}},
            }
        )
    ).models["m"]


def tensors(*stated: tuple[str, str, list[int]]) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in stated]


def faults(told: Signature = TOLD, dialect: str = "oip", **fields: Any) -> list[tuple[str, str]]:
    found = differences(model(**fields), told, DIALECTS[dialect].bindings["http"].capability)
    return [(".".join(map(str, path)), text) for path, text in found]


A, C = ("a", "FP32", [-1, 4]), ("c", "UINT8", [-1, 2])


def test_what_is_not_stated_is_not_wrong() -> None:
    assert faults() == []
    assert faults(inputs={"x": "a"}, outputs={"y": "c"}) == []
    assert faults(signature={"inputs": tensors(A), "outputs": tensors(C)}) == []


def test_free_dimensions_are_like_any() -> None:
    assert faults(signature={"inputs": tensors(("a", "FP32", [3, -1])), "outputs": tensors(C)}) == []


@pytest.mark.parametrize(
    ("stated", "key", "text"),
    [
        (("a", "FP64", [-1, 4]), "signature.inputs.0.datatype", "is FP64, the server reports FP32"),
        (("a", "FP32", [4]), "signature.inputs.0.shape", "is [4], the server reports [-1, 4]"),
        (("a", "FP32", [-1, 5]), "signature.inputs.0.shape", "is [-1, 5], the server reports [-1, 4]"),
        (
            ("z", "FP32", [-1, 4]),
            "signature.inputs.0.name",
            "the server's model has no input 'z' (there are: a, b)",
        ),
    ],
)
def test_a_tensor_that_is_another(stated: tuple[str, str, list[int]], key: str, text: str) -> None:
    assert faults(signature={"inputs": tensors(stated), "outputs": tensors(C)}) == [(key, text)]


def test_an_input_that_is_missing() -> None:
    wide = Signature((*TOLD.inputs, TensorSpec("d", Datatype.FP32, (-1,))), TOLD.outputs)
    assert faults(wide, signature={"inputs": tensors(A), "outputs": tensors(C)}) == [
        ("signature.inputs", "lacks 'd', which the server's model requires")
    ]


def test_renamed_tensors() -> None:
    signature = {"inputs": tensors(("x", "FP32", [-1, 4])), "outputs": tensors(("y", "FP32", [-1, 2]))}
    assert faults(signature=signature, inputs={"x": "a"}, outputs={"y": "c"}) == [
        ("signature.outputs.0.datatype", "is FP32, the server reports UINT8")
    ]
    assert faults(signature=signature, inputs={"x": "q"}, outputs={"y": "c"})[0] == (
        "inputs.x",
        "the server's model has no input 'q' (there are: a, b)",
    )


def test_what_the_dialect_widens_is_reported_as_that() -> None:
    signature = {"inputs": tensors(A), "outputs": tensors(("c", "BOOL", [-1, 2]))}
    assert faults(signature=signature, dialect="graphpipe") == []
    assert faults(signature=signature, dialect="oip") == [
        ("signature.outputs.0.datatype", "is BOOL, the server reports UINT8")
    ]


def test_a_server_without_names_binds_by_order() -> None:
    told = Signature((TensorSpec("", Datatype.FP32, (-1, 4)),), (TensorSpec("", Datatype.FP32, (-1, 2)),))
    assert faults(told, signature={"inputs": tensors(A), "outputs": tensors(C)}) == [
        ("signature.outputs.0.datatype", "is UINT8, the server reports FP32")
    ]
