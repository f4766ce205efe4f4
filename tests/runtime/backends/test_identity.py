"""The identity backend: any bytes, no copy, and a configuration that must make sense."""

from pathlib import Path

import pytest

from interlingua.runtime.backends import BACKENDS
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.schemas import Datatype, Tensor, TensorSpec, pack_bytes

IDENTITY = BACKENDS["identity"]


def spec(
    name: str, datatype: Datatype = Datatype.BYTES, shape: tuple[int, ...] = (-1,), **more
) -> TensorSpec:
    return TensorSpec(name, datatype, shape, **more)


def test_echoes_the_same_buffer_under_the_outputs_names() -> None:
    config = ModelConfig(
        inputs=(spec("A"), spec("B", Datatype.FP32)), outputs=(spec("X"), spec("Y", Datatype.FP32))
    )
    instance = IDENTITY.load(Path("1"), config)
    text = Tensor.checked("A", Datatype.BYTES, [2], pack_bytes([b"\xff\x00", b""]))
    numbers = Tensor.checked("B", Datatype.FP32, [1], b"\x00\x00\xc0\x7f")

    swapped = instance.run((numbers, text), ("Y", "X"))

    assert [tensor.name for tensor in swapped] == ["Y", "X"]
    assert swapped[0].data is numbers.data
    assert swapped[1].data is text.data
    assert instance.run((numbers, text), ()) == ()


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        ((), (), "states inputs and outputs"),
        ((spec("A"),), (), "1 inputs and 0 outputs"),
        ((spec("A"),), (spec("X", Datatype.INT8),), r"'A' \(BYTES \[-1\]\) as output 'X', .* INT8 \[-1\]"),
        ((spec("A"),), (spec("X", shape=(2,)),), r"declared BYTES \[2\]"),
        ((spec("A", optional=True),), (spec("X"),), "optional input 'A'"),
    ],
)
def test_a_configuration_that_cannot_be_echoed_is_refused(inputs, outputs, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        IDENTITY.load(Path("1"), ModelConfig(inputs=inputs, outputs=outputs))
