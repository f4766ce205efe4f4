"""From files to models: single files, folders, whole repositories, and what is broken among them."""

from pathlib import Path

import numpy as np
import pytest

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.files import ModelSource, find_models, load_model, load_models
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferRequest,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)
from tests.runtime.onnx_models import write_identity

X = Tensor.from_numpy("x", np.array([1, 2], np.float32))


def model_folder(repository: Path, name: str, config: str = "", versions: tuple[str, ...] = ("1",)) -> Path:
    folder = repository / name
    folder.mkdir(parents=True)
    if config:
        (folder / "config.pbtxt").write_text(config)
    for version in versions:
        write_identity(folder / version / "model.onnx")
    return folder


async def test_a_single_file_is_version_1(tmp_path: Path) -> None:
    model = load_model(ModelSource("m", write_identity(tmp_path / "any_name.onnx")))
    metadata = await model.metadata()
    assert (metadata.name, metadata.versions, metadata.platform) == ("m", ("1",), "onnx_onnxv1")
    assert metadata.signature == Signature(
        (TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("y", Datatype.FP32, (-1,)),)
    )
    response = await model.infer(InferRequest("m", (X,)))
    assert (response.version, response.outputs[0].numpy().tolist()) == ("1", [1, 2])
    await model.close()


async def test_a_folder_under_another_name(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, "m", 'name: "m" max_batch_size: 0', ("1", "2"))
    model = load_model(ModelSource("alias", folder, description="the same", parameters={"author": "us"}))
    metadata = await model.metadata()
    assert (metadata.name, metadata.versions, metadata.description) == ("alias", ("2",), "the same")
    assert metadata.parameters == {"author": "us"}
    await model.close()


async def test_only_version_folders_are_versions(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, "m", "version_policy { all { } }", ("1", "10", "9"))
    for name in ("01", "v2", "-3", "²", ".4"):
        write_identity(folder / name / "model.onnx")
    (folder / "5").write_text("a file")
    model = load_model(ModelSource("m", folder))
    assert (await model.metadata()).versions == ("1", "9", "10")
    assert not model.failed
    await model.close()


async def test_the_default_model_filename(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_identity(folder / "1" / "other.onnx")
    (folder / "config.pbtxt").write_text('default_model_filename: "other.onnx"')
    model = load_model(ModelSource("m", folder))
    assert (await model.ready()).ready
    await model.close()


async def test_a_broken_version_leaves_the_others(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, "m", "version_policy { specific { versions: [1, 2, 3, 4] } }", ("1", "2"))
    (folder / "2" / "model.onnx").write_bytes(b"broken")
    (folder / "3").mkdir()
    model = load_model(ModelSource("m", folder))
    assert (await model.metadata()).versions == ("1",)
    assert set(model.failed) == {"2", "3", "4"}
    assert "INVALID_PROTOBUF" in model.failed["2"]
    assert model.failed["3"].endswith("3/model.onnx: there is no such model file")
    assert "there is no version 4" in model.failed["4"]
    with pytest.raises(InferenceError, match="version 2 is not at ready state"):
        await model.infer(InferRequest("m", (X,), version="2"))
    assert (await model.infer(InferRequest("m", (X,)))).version == "1"
    await model.close()


async def test_the_identity_backend_needs_no_model_file(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    tensor = 'name: "{}" data_type: TYPE_STRING dims: -1'
    (tmp_path / "m" / "config.pbtxt").write_text(
        f'backend: "identity" input {{ {tensor.format("x")} }} output {{ {tensor.format("y")} }}'
    )
    model = load_model(ModelSource("m", tmp_path / "m"))
    raw = Tensor.checked("x", Datatype.BYTES, [1], pack_bytes([b"\xff"]))
    response = await model.infer(InferRequest("m", (raw,)))
    assert response.outputs[0].elements() == [b"\xff"]
    assert (await model.metadata()).platform == "identity"
    await model.close()


async def test_a_backend_without_files_needs_no_path() -> None:
    signature = Signature((TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("y", Datatype.FP32, (-1,)),))
    model = load_model(ModelSource("echo", None, backend="identity", signature=signature))
    response = await model.infer(InferRequest("echo", (X,)))
    assert (response.version, response.outputs[0].numpy().tolist()) == ("1", [1, 2])
    await model.close()
    with pytest.raises(LoadError, match="echo: the identity backend needs a configuration"):
        load_model(ModelSource("echo", None, backend="identity"))
    with pytest.raises(LoadError, match="model 'net': its backend needs a path"):
        load_model(ModelSource("net", None, backend="onnxruntime", signature=signature))


async def test_a_stated_signature_overrides_the_configuration(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, "m", 'input { name: "no such" data_type: TYPE_FP32 }')
    signature = Signature(
        (TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("y", Datatype.FP32, (-1,)),), max_batch_size=4
    )
    model = load_model(ModelSource("m", folder, signature=signature))
    assert await model.signature() == signature
    await model.close()


def test_a_stated_device_overrides_the_configuration(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, "m", "instance_group { kind: KIND_CPU }")
    with pytest.raises(LoadError, match="device 'abacus'"):
        load_model(ModelSource("m", folder, device="abacus"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('name: "other"', "the configuration is of model 'other', not of 'm'"),
        ('backend: "tensorflow"', "backend 'tensorflow' is not one of onnxruntime, identity, python"),
        ('platform: "tensorrt_plan"', "backend 'tensorrt_plan' is not one of"),
        ('input { name: "X" data_type: TYPE_FP32 dims: -1 }', r"1/model\.onnx: input 'X' is declared"),
        ("max_batch_size: oops", r"config\.pbtxt: 1:17"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path: Path, config: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        load_model(ModelSource("m", model_folder(tmp_path, "m", config)))


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no model folder or model file"):
        load_model(ModelSource("m", tmp_path / "absent"))
    with pytest.raises(LoadError, match="there is no version folder"):
        load_model(ModelSource("m", model_folder(tmp_path, "m", versions=())))


async def test_a_repository_with_broken_models(tmp_path: Path) -> None:
    model_folder(tmp_path, "good")
    model_folder(tmp_path, "also_good")
    model_folder(tmp_path, "bad", 'backend: "tensorflow"')
    model_folder(tmp_path, ".hidden")
    (tmp_path / "README.md").write_text("not a model")
    told: list[tuple[str, str]] = []

    loaded = load_models(find_models(tmp_path), lambda name, state: told.append((name, state)))

    assert list(loaded.models) == ["also_good", "good"]
    assert set(loaded.failed) == {"bad"}
    assert "backend 'tensorflow'" in str(loaded.failed["bad"])
    states: dict[str, list[str]] = {}
    for name, state in told:
        states.setdefault(name, []).append(state)
    assert states == {
        "good": ["loading", "ready"],
        "also_good": ["loading", "ready"],
        "bad": ["loading", "failed"],
    }
    for model in loaded.models.values():
        await model.close()


async def test_chosen_models_of_a_repository(tmp_path: Path) -> None:
    model_folder(tmp_path, "a")
    model_folder(tmp_path, "b")
    loaded = load_models(find_models(tmp_path, ["b", "absent"]))
    assert set(loaded.models) == {"b"}
    assert "there is no model folder" in str(loaded.failed["absent"])
    await loaded.models["b"].close()


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"model repository .*absent: No such file"):
        find_models(tmp_path / "absent")
