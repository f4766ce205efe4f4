"""How many instances a configuration may state, and a client's more strictly: each may be a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.model_config.pbtxt import MODEL_CONFIG
from interlingua.runtime.models.warmup import MAX_RUNS
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import ModelSource, Repository, load_model
from interlingua.runtime.scheduling.policy import Limits
from interlingua.schemas import InferenceError, ModelControl
from tests.runtime.repository.test_files import model_folder

LIMITS = Limits(instances=4, override_instances=2)


def stated(count: int) -> str:
    return f"instance_group {{ count: {count} }}"


def override(text: str) -> ModelControl:
    return ModelControl(config=text_format.Parse(text, MODEL_CONFIG()).SerializeToString())


def catalog_of(folder: Path, limits: Limits = LIMITS) -> ModelCatalog:
    return ModelCatalog(repositories=[Repository(folder, True, "", "config", limits=limits)])


async def test_a_configuration_within_the_limit_loads(tmp_path: Path) -> None:
    model = load_model(ModelSource("m", model_folder(tmp_path, "m", stated(4)), limits=LIMITS))
    await model.close()


def test_a_configuration_above_the_limit_does_not(tmp_path: Path) -> None:
    source = ModelSource("m", model_folder(tmp_path, "m", stated(5)), limits=LIMITS)
    with pytest.raises(
        LoadError, match=r"instance_group has 5 instances, more than max_instances permits \(4\)"
    ):
        load_model(source)


async def test_the_operators_own_number_counts(tmp_path: Path) -> None:
    source = ModelSource("m", model_folder(tmp_path, "m", stated(5)), instances=6, limits=LIMITS)
    await load_model(source).close()


@pytest.mark.parametrize(
    "config",
    [
        stated(3),
        "instance_group { count: 2 } instance_group { count: 1 }",
        "version_policy { all { } } instance_group { count: 2 }",
    ],
)
async def test_a_clients_configuration_above_its_limit_is_refused(tmp_path: Path, config: str) -> None:
    model_folder(tmp_path, "m", versions=("1", "2"))
    catalog = catalog_of(tmp_path)
    with pytest.raises(InferenceError, match=r"more than max_override_instances permits \(2\)"):
        await catalog.load("m", override(config))
    assert "m" not in catalog.models
    await catalog.load("m", override(stated(2)))
    with pytest.raises(InferenceError, match="max_override_instances"):
        await catalog.load("m", override(stated(200)))
    assert "m" in catalog.models, "the served model stays"
    await catalog.close()


@pytest.mark.parametrize(
    "config", [stated(2**31 - 1), stated(1000) * 10, "instance_group { count: 0 }" * 5000]
)
async def test_absurd_counts_take_no_memory(tmp_path: Path, config: str) -> None:
    model_folder(tmp_path, "m")
    with pytest.raises(InferenceError, match="instances, more than 4096"):
        await catalog_of(tmp_path).load("m", override(config))


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (f"count: {MAX_RUNS + 1}", "10001 runs, more than 10000"),
        ("batch_size: 4000000000", "16000000000 bytes, more than 1073741824"),
    ],
)
async def test_warm_up_of_a_client_is_bounded(tmp_path: Path, sample: str, said: str) -> None:
    model_folder(tmp_path, "m")
    text = f"""
        max_batch_size: 8
        input {{ name: "x" data_type: TYPE_FP32 dims: 1 }} output {{ name: "y" data_type: TYPE_FP32 dims: 1 }}
        model_warmup {{ name: "s" {sample if "batch" in sample else "batch_size: 1 " + sample}
          inputs {{ key: "x" value {{ data_type: TYPE_FP32 dims: 1 random_data: true }} }} }}"""
    with pytest.raises(InferenceError, match=said):
        await catalog_of(tmp_path).load("m", override(text))
