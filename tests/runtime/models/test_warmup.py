"""Samples that a model is asked before anybody else asks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.backends import Job
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.warmup import Warmup, WarmupInput, read_samples
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import ModelSource, Repository, find_models, load_model, load_models
from interlingua.schemas import Datatype, InferenceError, InferRequest, ModelState, Tensor
from tests.runtime.onnx_models import node, value, write
from tests.runtime.python_models import python_model
from tests.runtime.repository.test_catalog import states

BATCHED = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
"""


def sample(shape: tuple[int, ...], datatype: Datatype = Datatype.FP32, batch: int = 1, **more: Any) -> Warmup:
    return Warmup("s", batch, (WarmupInput("x", datatype, shape, **more),))


def read(tmp_path: Path, warmup: Warmup, batched: bool = True) -> Tensor:
    (found,) = read_samples("m", tmp_path, (warmup,), batched)
    (tensor,) = found.request.inputs
    return tensor


@pytest.mark.parametrize("datatype", Datatype)
def test_zeros_and_random_values(tmp_path: Path, datatype: Datatype) -> None:
    zeros = read(tmp_path, sample((2, 3), datatype, 4))
    assert (zeros.datatype, zeros.shape) == (datatype, (4, 2, 3))
    empty = b"" if datatype is Datatype.BYTES else 0
    assert set(np.unique(zeros.numpy())) == {empty}
    drawn, again = (read(tmp_path, sample((50,), datatype, 4, random=True)).numpy() for _ in range(2))
    assert len({*drawn.ravel().tolist()}) > 1
    assert drawn.tolist() == again.tolist(), "a failure shows again"
    if datatype is not Datatype.BYTES:
        assert (drawn.astype(float) >= 0).all()
        assert (drawn.astype(float) < 128).all()


def test_without_a_batch(tmp_path: Path) -> None:
    assert read(tmp_path, sample((2, 3)), batched=False).shape == (2, 3)
    assert read(tmp_path, sample(()), batched=False).shape == ()


def test_a_batch_of_none_is_omitted(tmp_path: Path) -> None:
    assert read_samples("m", tmp_path, (sample((1,), batch=0),), True) == ()


def test_contents_of_a_file_are_repeated_over_the_batch(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    numbers = np.array([1.5, 2.5], np.float32)
    (tmp_path / "warmup" / "numbers").write_bytes(numbers.tobytes())
    tensor = read(tmp_path, sample((2,), batch=3, file="numbers"))
    assert tensor.numpy().tolist() == [[1.5, 2.5]] * 3
    (tmp_path / "warmup" / "words").write_bytes(b"\3\0\0\0one\0\0\0\0")
    words = read(tmp_path, sample((2,), Datatype.BYTES, 2, file="words"))
    assert words.elements() == [b"one", b"", b"one", b""]


@pytest.mark.parametrize(
    ("warmup", "batched", "said"),
    [
        (sample((-1,)), True, r"sample 's', input 'x': dims \[-1\] have a free dimension"),
        (sample((2,), batch=2), False, "sample 's' has a batch of 2; the model takes none"),
        (sample((2,), file="absent"), True, "sample 's', input 'x': .*No such file.*warmup/absent"),
        (sample((2,), file="short"), True, "sample 's', input 'x': .*needs 8 bytes, got 4"),
    ],
)
def test_samples_that_cannot_be(tmp_path: Path, warmup: Warmup, batched: bool, said: str) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "short").write_bytes(b"1234")
    with pytest.raises(ValueError, match=said):
        read_samples("m", tmp_path, (warmup,), batched)


# --- what a configuration says


def onnx_model(repository: Path, warmup: str, operator: str = "Neg") -> ModelSource:
    shape = ["n", 2]
    write(
        repository / "m" / "1" / "model.onnx",
        [node(operator, ["x"], ["y"])],
        [value("x", Datatype.FP32, shape)],
        [value("y", Datatype.FP32, shape)],
    )
    (repository / "m" / "config.pbtxt").write_text(BATCHED + warmup)
    return ModelSource("m", repository / "m")


def warmup_text(name: str = "x", data_type: str = "TYPE_FP32", more: str = "zero_data: true") -> str:
    return (
        f'model_warmup {{ name: "first" batch_size: 4 count: 2 '
        f'inputs {{ key: "{name}" value {{ data_type: {data_type} dims: 2 {more} }} }} }}'
    )


def watched(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> list[list[list[float]]]:
    """What every run of ``model`` from now on is given as its first input."""
    given: list[list[list[float]]] = []
    for version in model.loaded.values():
        run = version._run  # type: ignore[union-attr]

        def watching(inputs: Any, outputs: Any, run: Any = run) -> Any:
            given.append(inputs[0].numpy().tolist())
            return run(inputs, outputs)

        monkeypatch.setattr(version, "_run", watching)
    return given


async def test_samples_are_run_once_and_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(onnx_model(tmp_path, warmup_text()))
    given = watched(model, monkeypatch)
    await model.warm_up()
    assert given == [[[0, 0]] * 4] * 2
    await model.warm_up()
    assert len(given) == 2
    status = await model.status()
    assert status.versions[0].statistics.execution_count == 0
    await model.close()


async def test_only_versions_that_are_new_are_warmed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = onnx_model(tmp_path, "version_policy { all { } }" + warmup_text())
    old = load_model(source)
    (tmp_path / "m" / "2").mkdir()
    (tmp_path / "m" / "2" / "model.onnx").write_bytes((tmp_path / "m" / "1" / "model.onnx").read_bytes())
    model = load_model(source, old)
    assert list(model.loaded) == ["1", "2"]
    given = watched(model, monkeypatch)
    await model.warm_up(old)
    assert len(given) == 2
    await model.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            warmup_text(more=""),
            "model_warmup 'first': input 'x' has no zero_data, random_data or input_data_",
        ),
        (warmup_text(data_type="TYPE_INVALID"), "model_warmup 'first': input 'x' has no data_type"),
        (warmup_text(more='input_data_file: "../secret"'), "file '../secret' is not in the model's folder"),
        (warmup_text(more='input_data_file: "absent"'), "model_warmup: sample 'first', input 'x': .*absent"),
    ],
)
def test_configurations_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        load_model(onnx_model(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (warmup_text("z"), "unexpected inference input 'z'"),
        (warmup_text(data_type="TYPE_INT32"), "input 'x' data-type is 'INT32'"),
        (warmup_text().replace("batch_size: 4", "batch_size: 9"), "batch-size must be <= 8"),
    ],
)
async def test_a_sample_that_the_model_does_not_take(tmp_path: Path, text: str, said: str) -> None:
    onnx_model(tmp_path, text)
    catalog = ModelCatalog(repositories=[Repository(tmp_path, True)])
    with pytest.raises(
        InferenceError, match=f"failed to load 'm', .*version 1: warm-up 'first' failed: .*{said}"
    ):
        await catalog.load("m")
    assert not catalog.models
    assert [state for _, state, _ in states(await catalog.status("m"))] == [ModelState.UNAVAILABLE]
    await catalog.close()


async def test_at_the_start_too(tmp_path: Path) -> None:
    onnx_model(tmp_path, warmup_text("z"))
    loaded = load_models(find_models(tmp_path))
    catalog = ModelCatalog(loaded.models, loaded.failed, [Repository(tmp_path)])
    await catalog.warm_up()
    assert not catalog.models
    ((number, state, reason),) = states(await catalog.status("m"))
    assert (number, state) == ("1", ModelState.UNAVAILABLE)
    assert reason.startswith("warm-up 'first' failed")
    assert not (await catalog.readiness(["m"])).ready
    await catalog.close()


async def test_a_failing_sample_leaves_what_is_served(tmp_path: Path) -> None:
    onnx_model(tmp_path, warmup_text())
    catalog = ModelCatalog(repositories=[Repository(tmp_path, True)])
    await catalog.load("m")
    served = catalog.models["m"]
    onnx_model(tmp_path, warmup_text("z"))
    with pytest.raises(InferenceError, match="warm-up 'first' failed"):
        await catalog.load("m")
    assert catalog.models["m"] is served
    asked = InferRequest("m", (Tensor.from_numpy("x", np.ones((1, 2), np.float32)),))
    assert (await served.infer(asked)).outputs[0].numpy().tolist() == [[-1, -1]]
    assert states(await catalog.status("m"))[0][2].startswith("not loaded again: warm-up 'first' failed")
    await catalog.close()


# --- Python models


COUNTING = """
def initialize(self, args):
    self.given = []
def execute(self, requests):
    answers = []
    for request in requests:
        array = given(request)
        answers.append(answer(self.given if array.size == 0 else array))
        self.given = [*self.given, *array.ravel().tolist()]
    return answers
"""
PYTHON = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_INT32 dims: 3 zero_data: true } } }
"""


async def test_every_process_of_a_python_model_is_warmed_up(tmp_path: Path) -> None:
    python_model(tmp_path, COUNTING, PYTHON + "instance_group { count: 2 }")
    catalog = ModelCatalog(repositories=[Repository(tmp_path, True)])
    await catalog.load("m")
    model = catalog.models["m"]
    assert isinstance(model, LocalModel)
    (version,) = model.loaded.values()
    told = []
    nothing = Tensor.from_numpy("IN", np.array([], np.int32))
    for place in range(2):
        held = await version.instance.claim(None, place)  # type: ignore[union-attr]
        (answers,) = held.run([Job(InferRequest("m", (nothing,)), (nothing,), ("OUT",))])
        told.append((await anext(answers)).outputs[0].numpy().tolist())
        await answers.aclose()
    assert told == [[0, 0, 0]] * 2
    await catalog.close()


async def test_a_model_of_sequences_is_warmed_up_with_one(tmp_path: Path) -> None:
    control = (
        'sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START '
        "int32_false_true: [ 0, 1 ] } } }"
    )
    body = """
    def execute(self, requests):
        return [
            answer(given(each) + pb.get_input_tensor_by_name(each, "START").as_numpy()) for each in requests
        ]
    """
    python_model(tmp_path, body, PYTHON + control)
    catalog = ModelCatalog(repositories=[Repository(tmp_path, True)])
    await catalog.load("m")
    await catalog.close()


async def test_a_python_model_that_fails_its_sample(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        raise ValueError("not that")
    """
    python_model(tmp_path, body, PYTHON)
    catalog = ModelCatalog(repositories=[Repository(tmp_path, True)])
    with pytest.raises(InferenceError, match="warm-up 'w' failed: .*not that"):
        await catalog.load("m")
    await catalog.close()
