"""Tensors that clients see in another shape than the model does."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.reshape import Reshape, reshaped
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.schemas import Datatype, ErrorCode, InferenceError, InferRequest, Tensor
from interlingua.schemas.oip import MESSAGES
from tests.runtime.onnx_models import node, value, write


@pytest.mark.parametrize(
    ("outer", "inner", "given", "seen"),
    [
        ((1,), (), (1,), ()),
        ((-1, 1), (-1,), (7, 1), (7,)),
        ((6,), (2, 3), (6,), (2, 3)),
        ((-1, 4, -1), (-1, 2, 2, -1), (5, 4, 0), (5, 2, 2, 0)),
        ((-1, -1, 2), (2, -1, -1), (3, 9, 2), (2, 3, 9)),
    ],
)
def test_shapes_go_both_ways(outer, inner, given, seen) -> None:
    reshape = Reshape(outer, inner)
    assert reshape.to_inner(given) == seen
    assert reshape.to_outer(seen) == given


@pytest.mark.parametrize(
    ("outer", "inner", "said"),
    [
        ((2, 3), (5,), "as many elements"),
        ((-1, 3), (3,), "as many free dimensions"),
        ((2,), (0,), "as many elements"),
    ],
)
def test_shapes_that_cannot_be_one_tensor(outer, inner, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Reshape(outer, inner)


def test_a_model_that_answers_otherwise_than_declared() -> None:
    run = reshaped(lambda inputs, outputs: inputs, {}, {"y": Reshape((1,), ())})
    with pytest.raises(InferenceError, match=r"output 'y' came in shape \[2\], declared is \[\]") as caught:
        run((Tensor.from_numpy("y", np.zeros(2, np.float32)),), ("y",))
    assert caught.value.code is ErrorCode.MODEL_FAILED


def model_of_rows(folder: Path, config: str) -> Path:
    """``y`` [N] is the sum of ``x`` [N, 2, 3] and ``bias`` [N], summed over each row."""
    write(
        folder / "1" / "model.onnx",
        [node("ReduceSum", ["x", "axes"], ["rows"], keepdims=0), node("Add", ["rows", "bias"], ["y"])],
        [value("x", Datatype.FP32, ["N", 2, 3]), value("bias", Datatype.FP32, ["N"])],
        [value("y", Datatype.FP32, ["N"])],
        constants=[helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2])],
    )
    (folder / "config.pbtxt").write_text(config)
    return folder


CONFIG = """
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 6 ] reshape { shape: [ 2, 3 ] } },
        { name: "bias" data_type: TYPE_FP32 dims: [ 1 ] reshape { } } ]
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
"""


async def test_a_model_with_reshapes(tmp_path: Path) -> None:
    model = load_model(ModelSource("rows", model_of_rows(tmp_path / "rows", CONFIG)))
    signature = await model.signature()
    assert [spec.shape for spec in (*signature.inputs, *signature.outputs)] == [(-1, 6), (-1, 1), (-1, 1)]
    x, bias = np.arange(12, dtype=np.float32).reshape(2, 6), np.float32([[100], [200]])
    tensors = (Tensor.from_numpy("x", x), Tensor.from_numpy("bias", bias))
    (y,) = (await model.infer(InferRequest("rows", tensors))).outputs
    assert y.numpy().tolist() == [[115], [251]]
    with pytest.raises(InferenceError, match=r"Expected \[-1,6\], got \[2,2,3\]"):
        await model.infer(InferRequest("rows", (Tensor.from_numpy("x", x.reshape(2, 2, 3)), tensors[1])))
    config = MESSAGES["inference.ModelConfig"].FromString((await model.status()).config)
    assert [list(tensor.dims) for tensor in (*config.input, *config.output)] == [[6], [1], [1]]
    assert list(config.input[0].reshape.shape) == [2, 3]
    assert config.output[0].HasField("reshape")
    assert not config.output[0].reshape.shape
    await model.close()


def test_a_reshape_that_the_model_does_not_have(tmp_path: Path) -> None:
    folder = model_of_rows(tmp_path / "rows", CONFIG.replace("[ 2, 3 ]", "[ 3, 2 ]"))
    with pytest.raises(LoadError, match=r"'x' \(FP32 \[-1, 3, 2\]\) is declared, but the model has"):
        load_model(ModelSource("rows", folder))


async def test_the_identity_backend_reshapes_too(tmp_path: Path) -> None:
    folder = tmp_path / "echo"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        'backend: "identity" input { name: "x" data_type: TYPE_INT8 dims: [ 2, 3 ] reshape { shape: 6 } } '
        'output { name: "y" data_type: TYPE_INT8 dims: 6 }'
    )
    model = load_model(ModelSource("echo", folder))
    given = Tensor.from_numpy("x", np.arange(6, dtype=np.int8).reshape(2, 3))
    (y,) = (await model.infer(InferRequest("echo", (given,)))).outputs
    assert y.numpy().tolist() == [0, 1, 2, 3, 4, 5]
    await model.close()
    (folder / "config.pbtxt").write_text(
        'backend: "identity" input { name: "x" data_type: TYPE_INT8 dims: 6 reshape { shape: [ 2, 3 ] } } '
        'output { name: "y" data_type: TYPE_INT8 dims: 6 }'
    )
    with pytest.raises(LoadError, match=r"echoes input 'x' \(INT8 \[2, 3\]\) as output 'y'"):
        load_model(ModelSource("echo", folder))
