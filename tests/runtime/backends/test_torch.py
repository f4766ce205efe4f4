"""PyTorch with real models: both file formats, every datatype bit for bit, names, and what it cannot do."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the extra 'torch' (make test-torch)")

from interlingua.runtime.backends.torch import load  # noqa: E402
from interlingua.runtime.model_config.config import LoadError, ModelConfig  # noqa: E402
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor, TensorSpec  # noqa: E402
from tests.strategies import tensors  # noqa: E402

NUMERIC = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]


class Identity(torch.nn.Module):
    def forward(self, x):
        return x


class Several(torch.nn.Module):
    def forward(self, a, b):
        return a - b, a + b


class Named(torch.nn.Module):
    def forward(self, a, b):
        return {"difference": a - b, "sum": a + b}


class InPlace(torch.nn.Module):
    def forward(self, x):
        flat = x.view(-1)
        flat[0] = 99.0
        return x + 0.0


class Failing(torch.nn.Module):
    def forward(self, x):
        return x.reshape(3, 5)


def scripted(module: torch.nn.Module, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(module).save(str(path))
    return path


def exported(module: torch.nn.Module, path: Path, *examples, **dynamic) -> Path:
    torch.export.save(torch.export.export(module, examples, dynamic_shapes=dynamic or None), path)
    return path


def spec(name: str, datatype: Datatype = Datatype.FP32, *shape: int) -> TensorSpec:
    return TensorSpec(name, datatype, shape or (-1,))


def config(inputs=(), outputs=(), **rest) -> ModelConfig:
    return ModelConfig(inputs=tuple(inputs), outputs=tuple(outputs), **rest)


def floats(name: str, *values: float) -> Tensor:
    return Tensor.from_numpy(name, np.array(values, np.float32))


def lists(outputs: tuple[Tensor, ...]) -> dict[str, list]:
    return {tensor.name: tensor.numpy().tolist() for tensor in outputs}


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    path = scripted(Identity(), tmp_path_factory.mktemp("torch") / "model.pt")
    return lambda datatype: load(path, config([spec("x", datatype)], [spec("y", datatype)]))


@settings(deadline=None)
@given(tensor=tensors(NUMERIC, name="x", shape=st.lists(st.integers(0, 4), max_size=3).map(tuple)))
def test_every_numeric_datatype_survives_bit_for_bit(identity: Callable, tensor: Tensor) -> None:
    (output,) = identity(tensor.datatype).run((tensor,), ("y",))
    assert (output.name, output.datatype, output.shape) == ("y", tensor.datatype, tensor.shape)
    assert bytes(output.view) == bytes(tensor.view)
    assert output.view.readonly


def test_unaligned_buffers_are_read_right(identity: Callable) -> None:
    body = b"\0" + np.array([1.5, -2.5], np.float32).tobytes()
    tensor = Tensor.checked("x", Datatype.FP32, [2], memoryview(body)[1:])
    assert lists(identity(Datatype.FP32).run((tensor,), ("y",))) == {"y": [1.5, -2.5]}


@pytest.mark.parametrize(
    "names",
    [("a", "b"), ("b", "a"), ("X__0", "X__1"), ("X__1", "X__0"), ("left", "right")],
    ids=["arguments", "arguments turned", "numbers", "numbers turned", "places"],
)
def test_inputs_are_bound_by_argument_number_or_place(tmp_path: Path, names: tuple[str, str]) -> None:
    model = load(
        scripted(Several(), tmp_path / "model.pt"),
        config([spec(name) for name in names], [spec("OUT__0"), spec("OUT__1")]),
    )
    first = "b" if names[0] == "b" else "X__1" if names[0] == "X__1" else ""
    # whatever the order in which they are declared and given, `a` is 5 and `b` is 3
    a, b = (names[1], names[0]) if first else names
    assert lists(model.run((floats(b, 3), floats(a, 5)), ("OUT__1", "OUT__0"))) == {
        "OUT__0": [2],
        "OUT__1": [8],
    }


@pytest.mark.parametrize("write", [scripted, lambda m, p: exported(m, p.with_suffix(".pt2"), *EXAMPLES)])
def test_a_mapping_gives_outputs_by_name(tmp_path: Path, write: Callable) -> None:
    path = write(Named(), tmp_path / "model.pt")
    model = load(path, config([spec("a"), spec("b")], [spec("sum"), spec("difference")]))
    assert lists(model.run((floats("a", 5), floats("b", 3)), ("sum", "difference"))) == {
        "sum": [8],
        "difference": [2],
    }


EXAMPLES = (torch.zeros(1), torch.zeros(1))


def test_an_exported_program_declares_its_tensors(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=9)
    path = exported(
        Several(),
        tmp_path / "model.pt2",
        torch.zeros(2, 3, dtype=torch.int64),
        torch.zeros(2, 3, dtype=torch.int64),
        a={0: batch},
        b={0: batch},
    )
    signature = load(path, config()).signature
    assert signature is not None
    assert signature.inputs == (spec("a", Datatype.INT64, -1, 3), spec("b", Datatype.INT64, -1, 3))
    assert signature.outputs == (
        spec("OUTPUT__0", Datatype.INT64, -1, 3),
        spec("OUTPUT__1", Datatype.INT64, -1, 3),
    )
    assert signature.max_batch_size > 0


@pytest.mark.parametrize("write", [scripted, lambda m, p: exported(m, p.with_suffix(".pt2"), torch.zeros(2))])
def test_a_model_that_writes_to_its_input_leaves_the_callers_bytes_alone(
    tmp_path: Path, write: Callable
) -> None:
    model = load(write(InPlace(), tmp_path / "model.pt"), config([spec("x")], [spec("y")]))
    given = floats("x", 1, 2)
    assert lists(model.run((given,), ("y",))) == {"y": [99, 2]}
    assert given.numpy().tolist() == [1, 2]


def test_what_a_model_raises_is_reported_in_its_words(tmp_path: Path) -> None:
    model = load(scripted(Failing(), tmp_path / "model.pt"), config([spec("x")], [spec("y")]))
    with pytest.raises(InferenceError, match="invalid for input of size 2") as caught:
        model.run((floats("x", 1, 2),), ("y",))
    assert caught.value.code is ErrorCode.MODEL_FAILED


def test_an_output_that_is_not_as_declared_is_an_error(tmp_path: Path) -> None:
    path = scripted(Identity(), tmp_path / "model.pt")
    wrong = load(path, config([spec("x")], [spec("y", Datatype.INT32)]))
    with pytest.raises(InferenceError, match="output 'y' is FP32, declared is INT32"):
        wrong.run((floats("x", 1),), ("y",))
    missing = load(path, config([spec("x")], [spec("y"), spec("z")]))
    with pytest.raises(InferenceError, match="output 'z' is missing"):
        missing.run((floats("x", 1),), ("z",))


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (config(), "does not declare its tensors"),
        (config([spec("x", Datatype.BYTES)], [spec("y")]), "'x' is BYTES, which PyTorch does not have"),
        (config([spec("x"), spec("z")], [spec("y")]), r"2 inputs are declared, but the model takes \['x'\]"),
        (config([spec("X__1")], [spec("y")]), r"leave out an argument of \['x'\]"),
        (config([spec("x")], [spec("y")], device="cuda:77"), "there is no device 'cuda:77' for PyTorch here"),
        (
            config([spec("x")], [spec("y")], parameters={"INTRA_OP_THREAD_COUNT": "many"}),
            "parameter INTRA_OP_THREAD_COUNT is 'many'",
        ),
    ],
    ids=["undeclared", "strings", "too many", "gap", "device", "threads"],
)
def test_what_cannot_be_served_is_refused_at_load(tmp_path: Path, stated: ModelConfig, says: str) -> None:
    path = scripted(Identity(), tmp_path / "model.pt")
    with pytest.raises(LoadError, match=says):
        load(path, stated)


@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(LoadError, match=name):
        load(tmp_path / name, config([spec("x")], [spec("y")]))
