"""Runs that repeat their shapes: the numbers of every one of them, and what their bindings may keep."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.backends import onnx_repeated
from interlingua.runtime.backends.onnx_repeated import RepeatedRuns
from interlingua.runtime.backends.onnxruntime import OnnxInstance, load
from interlingua.runtime.model_config.config import ModelConfig
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor
from tests.runtime.onnx_models import node, value, write, write_identity

TIMES = 40
FP32, INT64, BOOL = Datatype.FP32, Datatype.INT64, Datatype.BOOL


def tensor(array: Any, name: str = "x") -> Tensor:
    return Tensor.from_numpy(name, np.asarray(array))


def loaded(path: Path) -> OnnxInstance:
    return load(path, ModelConfig())


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each run, whether it was in a binding."""
    found: list[bool] = []
    run = RepeatedRuns.run

    def spied(*arguments: Any) -> Any:
        outputs = run(*arguments)
        found.append(outputs is not None)
        return outputs

    monkeypatch.setattr(RepeatedRuns, "run", spied)
    return found


@pytest.fixture
def doubled(tmp_path: Path) -> OnnxInstance:
    """y is x + x, z is -x."""
    return loaded(
        write(
            tmp_path / "m.onnx",
            [node("Add", ["x", "x"], ["y"]), node("Neg", ["x"], ["z"])],
            [value("x", FP32, ["a", "b"])],
            [value("y", FP32, ["a", "b"]), value("z", FP32, ["a", "b"])],
        )
    )


def test_every_run_has_its_own_numbers(doubled: OnnxInstance, bound: list[bool]) -> None:
    inputs = np.random.default_rng(0).standard_normal((TIMES, 2, 3)).astype(np.float32)
    answers = [doubled.run((tensor(each),), ("y", "z")) for each in inputs]
    # compared at the end: no answer may be in the memory of a later one
    for x, (y, z) in zip(inputs, answers, strict=True):
        assert (y.name, y.shape, z.name, z.shape) == ("y", (2, 3), "z", (2, 3))
        assert y.numpy().tobytes() == (x + x).tobytes()
        assert z.numpy().tobytes() == (-x).tobytes()
        assert y.view.readonly
    assert not bound[0]
    assert bound[-1]


def test_shapes_and_outputs_do_not_mix(doubled: OnnxInstance, bound: list[bool]) -> None:
    for number in range(2 * TIMES):
        for shape in ((2, 3), (3, 2), (6, 1)):
            x = np.full(shape, number, np.float32)
            for outputs in (("y",), ("z",), ("y", "z")):
                for answer in doubled.run((tensor(x),), outputs):
                    expected = x + x if answer.name == "y" else -x
                    assert answer.numpy().tolist() == expected.tolist()
    assert bound[-1]


@pytest.mark.parametrize(
    "datatype", [each for each in Datatype if each not in (Datatype.BYTES, Datatype.BF16)]
)
def test_every_datatype(datatype: Datatype, tmp_path: Path, bound: list[bool]) -> None:
    instance = loaded(write_identity(tmp_path / "m.onnx", datatype, ["a"]))
    for number in range(TIMES):
        data = bytes([number % 2]) * 8 if datatype is BOOL else bytes(range(number, number + 8)) * 8
        x = Tensor.checked("x", datatype, [len(data) // datatype.itemsize], data)
        (y,) = instance.run((x,), ("y",))
        assert bytes(y.view) == data
    assert bound[-1]


def test_inputs_in_another_order_and_optional_names(tmp_path: Path, bound: list[bool]) -> None:
    instance = loaded(
        write(
            tmp_path / "m.onnx",
            [node("Sub", ["a", "b"], ["y"])],
            [value("a", FP32, ["n"]), value("b", FP32, ["n"])],
            [value("y", FP32, ["n"])],
        )
    )
    for number in range(2 * TIMES):
        a, b = tensor(np.float32([number, 1]), "a"), tensor(np.float32([1, 2]), "b")
        for inputs in ((a, b), (b, a)):
            (y,) = instance.run(inputs, ("y",))
            assert y.numpy().tolist() == [number - 1, -1]
    assert bound[-1]


def test_an_output_whose_size_depends_on_values(tmp_path: Path) -> None:
    instance = loaded(
        write(
            tmp_path / "m.onnx",
            [node("NonZero", ["x"], ["y"])],
            [value("x", FP32, ["n"])],
            [value("y", INT64, [1, "m"])],
        )
    )
    for number in range(3 * TIMES):
        x = np.arange(4, dtype=np.float32) * (number % 3 > 0)
        (y,) = instance.run((tensor(x),), ("y",))
        assert y.numpy().tolist() == [np.flatnonzero(x).tolist()]


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    instance = loaded(
        write(
            tmp_path / "m.onnx",
            [node("Neg", ["x"], ["y"])],
            [value("x", FP32, ["n"])],
            [value("x", FP32, ["n"]), value("y", FP32, ["n"])],
        )
    )
    for number in range(TIMES):
        x, y = instance.run((tensor(np.float32([number, 2])),), ("x", "y"))
        assert (x.numpy().tolist(), y.numpy().tolist()) == ([number, 2], [-number, -2])


@pytest.mark.parametrize("garbage", onnx_repeated._GARBAGE)
def test_an_output_that_is_an_input_and_looks_unwritten(garbage: int, tmp_path: Path) -> None:
    """ONNX Runtime leaves the buffer of such an output as it is."""
    x, y = (value(name, Datatype.UINT8, ["n"]) for name in "xy")
    instance = loaded(write(tmp_path / "m.onnx", [node("Identity", ["x"], ["y"])], [x], [x, y]))
    for number in (*[garbage] * TIMES, *range(TIMES)):
        sent = np.full(4, number, np.uint8)
        for answer in instance.run((tensor(sent),), ("x", "y")):
            assert answer.numpy().tolist() == sent.tolist()


def test_what_the_engine_refuses_is_refused_in_a_binding(tmp_path: Path, bound: list[bool]) -> None:
    instance = loaded(
        write(
            tmp_path / "m.onnx",
            [node("Gather", ["x", "i"], ["y"])],
            [value("x", FP32, [4]), value("i", INT64, ["n"])],
            [value("y", FP32, ["n"])],
        )
    )
    x = tensor(np.arange(4, dtype=np.float32))
    for number in range(2 * TIMES):
        (y,) = instance.run((x, tensor([number % 4], "i")), ("y",))
        assert y.numpy().tolist() == [number % 4]
    assert bound[-1]
    words = []
    for _ in range(2):  # in a binding, and without one
        with pytest.raises(InferenceError, match="idx=7") as caught:
            instance.run((x, tensor([7], "i")), ("y",))
        assert caught.value.code is ErrorCode.MODEL_FAILED
        words.append(caught.value.message)
    assert words[0] == words[1]
    (y,) = instance.run((x, tensor([3], "i")), ("y",))
    assert y.numpy().tolist() == [3]


def test_threads_do_not_share_a_binding(doubled: OnnxInstance) -> None:
    def run(number: int) -> None:
        for _ in range(200):
            (y,) = doubled.run((tensor(np.full((1, 64), number, np.float32)),), ("y",))
            assert set(y.numpy().ravel().tolist()) == {2.0 * number}

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, number) for number in range(4)]:
            done.result()


@pytest.mark.parametrize(
    "shape",
    [pytest.param((64, 64), id="large"), pytest.param((0, 3), id="empty")],
)
def test_large_and_empty_tensors_have_no_binding(
    doubled: OnnxInstance, bound: list[bool], shape: tuple[int, int]
) -> None:
    for _ in range(TIMES):
        doubled.run((tensor(np.ones(shape, np.float32)),), ("y",))
    assert not any(bound)


@pytest.mark.parametrize(
    "broken", [lambda *_: None, lambda *_: 1 // 0], ids=["it writes nothing", "it raises"]
)
def test_a_binding_that_does_not_compute_is_not_used(
    doubled: OnnxInstance, bound: list[bool], broken: Callable[..., Any]
) -> None:
    repeated: Any = doubled._repeated
    repeated._run = broken
    for number in range(TIMES):
        (y,) = doubled.run((tensor(np.full((1, 1), number, np.float32)),), ("y",))
        assert y.numpy().tolist() == [[2 * number]]
    assert not any(bound)


def test_callers_that_vary_their_shapes_do_not_fill_the_tables(
    doubled: OnnxInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_repeated, "_MOST_SHAPES", 8)
    monkeypatch.setattr(onnx_repeated, "_MOST_BINDINGS", 3)
    repeated: Any = doubled._repeated
    for length in range(1, 40):
        for _ in range(TIMES if length % 2 else 1):
            doubled.run((tensor(np.ones((1, length), np.float32)),), ("y",))
        assert len(repeated._counts) <= 8
        assert len(repeated._free) <= 3


def test_a_closed_instance_frees_its_bindings(doubled: OnnxInstance) -> None:
    for _ in range(TIMES):
        (y,) = doubled.run((tensor(np.float32([[1.5]])),), ("y",))
    session = weakref.ref(doubled._session)
    doubled.close()
    gc.collect()
    assert session() is None
    assert y.numpy().tolist() == [[3.0]]
