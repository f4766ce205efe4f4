"""One model on several devices: this machine may have the CPU alone, so the devices here are told of and the
instances say where they are."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interlingua.runtime.backends import Instance, devices, onnxruntime
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.spread import Spread
from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.schemas import Datatype, InferRequest, Signature, Tensor, TensorSpec
from tests.runtime.onnx_models import write_identity

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 2)),), (TensorSpec("y", Datatype.FP32, (-1, 2)),), 8
)
X = Tensor.from_numpy("x", np.ones((1, 2), np.float32))

CONFIG = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_GPU gpus: [ 0, 1 ] } ]
"""


class OnDevice(Instance):
    """Runs only together with ``together - 1`` others."""

    signature = SIGNATURE

    def __init__(self, device: str, together: threading.Barrier | None = None) -> None:
        self.device = device
        self.runs = 0
        self.closed = False
        self._together = together

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        self.runs += 1
        if self._together is not None:
            self._together.wait(10)
        return tuple(inputs[0].renamed(name) for name in outputs)

    def close(self) -> None:
        self.closed = True


def test_runs_take_what_is_free_round_the_devices() -> None:
    made: dict[str, OnDevice] = {}
    spread = Spread(("a", "a", "b"), lambda device: made.setdefault(device, OnDevice(device)))
    for _ in range(6):
        spread.run((X,), ("y",))
    assert {device: each.runs for device, each in made.items()} == {"a": 4, "b": 2}
    spread.close()
    assert all(each.closed for each in made.values())


def test_as_many_run_at_once_on_each_device_as_are_stated() -> None:
    together = threading.Barrier(3)
    made: dict[str, OnDevice] = {}
    spread = Spread(("a", "a", "b"), lambda device: made.setdefault(device, OnDevice(device, together)))
    threads = [threading.Thread(target=spread.run, args=((X,), ("y",))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not together.broken
    assert {device: each.runs for device, each in made.items()} == {"a": 2, "b": 1}


def test_a_device_that_cannot_have_the_model_leaves_nothing_loaded() -> None:
    first = OnDevice("a")

    def load(device: str) -> Instance:
        if device == "b":
            raise LoadError("no room on b")
        return first

    with pytest.raises(LoadError, match="no room on b"):
        Spread(("a", "b"), load)
    assert first.closed


def folder(tmp_path: Path, config: str = CONFIG) -> Path:
    write_identity(tmp_path / "m/1/model.onnx", Datatype.FP32, ["N", 2])
    (tmp_path / "m/config.pbtxt").write_text(config)
    return tmp_path / "m"


def loads(monkeypatch: pytest.MonkeyPatch, gpus: int) -> list[str]:
    """With so many GPUs said to be there, onto which devices ONNX Runtime's models are loaded."""
    monkeypatch.setattr(devices, "cuda_count", lambda: gpus)
    seen: list[str] = []
    real = onnxruntime.load

    def load(path: Path, config: ModelConfig) -> Instance:
        seen.append(config.device)
        return real(path, replace(config, device="cpu"))

    monkeypatch.setattr(onnxruntime, "load", load)
    return seen


def ask(model: LocalModel, times: int) -> None:
    async def run() -> None:
        await asyncio.gather(*(model.infer(InferRequest("m", (X,))) for _ in range(times)))
        await model.close()

    asyncio.run(run())


def test_a_model_is_loaded_once_on_each_device_of_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = loads(monkeypatch, gpus=2)
    model = load_model(ModelSource("m", folder(tmp_path)))
    assert seen == ["cpu", "cuda:0", "cuda:1"]
    (version,) = model.loaded.values()
    assert isinstance(version, TensorVersion)
    assert version.threads is not None
    assert version.threads._max_workers == 4
    ask(model, 8)


def test_every_device_is_warmed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, gpus=2)
    runs: Counter[int] = Counter()
    real = onnxruntime.OnnxInstance.run

    def run(
        instance: onnxruntime.OnnxInstance, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> tuple[Tensor, ...]:
        runs[id(instance)] += 1
        return real(instance, inputs, outputs)

    monkeypatch.setattr(onnxruntime.OnnxInstance, "run", run)
    warmed = """model_warmup { name: "s" batch_size: 1 count: 2
        inputs { key: "x" value { data_type: TYPE_FP32 dims: 2 zero_data: true } } }"""
    model = load_model(ModelSource("m", folder(tmp_path, CONFIG + warmed)))
    asyncio.run(model.warm_up())
    # four turns for three devices, the CPU having two of them: six runs end with the second of a GPU
    assert sorted(runs.values()) == [1, 2, 3]
    asyncio.run(model.close())


def test_what_is_stated_beside_the_configuration_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = loads(monkeypatch, gpus=2)
    ask(load_model(ModelSource("m", folder(tmp_path), device="cuda:1")), 1)
    assert seen == ["cuda:1"]
    seen.clear()
    ask(load_model(ModelSource("m", folder(tmp_path), instances=2)), 1)
    assert seen == ["cpu", "cuda:0"]


def test_without_a_gpu_all_of_them_run_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = loads(monkeypatch, gpus=0)
    ask(load_model(ModelSource("m", folder(tmp_path))), 4)
    assert Counter(seen) == {"cpu": 1}


def test_a_gpu_beyond_those_that_there_are_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads(monkeypatch, gpus=1)
    with pytest.raises(LoadError, match="no device 'cuda:1' here, only cpu, cuda:0"):
        load_model(ModelSource("m", folder(tmp_path)))
