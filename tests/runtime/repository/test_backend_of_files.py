"""Folders without a configuration, or with one that names no backend: the model file tells what runs it, as
at Triton."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.schemas.model_config import MODEL_CONFIG
from tests.runtime.onnx_models import write_identity
from tests.runtime.python_models import ECHO, INT32, numbers, python_model, request

AUTO = """
@staticmethod
def auto_complete_config(config):
    config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]})
    config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]})
    return config
"""


def broken(folder: Path, *names: str, config: str = "") -> str:
    """The backend of a model whose files are no models, as its failure tells it."""
    (folder / "1").mkdir(parents=True)
    for name in names:
        (folder / "1" / name).write_bytes(b"broken")
    if config:
        (folder / "config.pbtxt").write_text(config)
    with pytest.raises(LoadError) as caught:
        load_model(ModelSource("m", folder))
    return str(MODEL_CONFIG.FromString(caught.value.config).backend)


@pytest.mark.parametrize("config", [None, "", INT32], ids=["none", "empty", "no backend"])
async def test_a_folder_with_model_py_is_a_python_model(tmp_path: Path, config: str | None) -> None:
    source = python_model(tmp_path, AUTO + ECHO, None)
    if config is not None:
        (tmp_path / "m" / "config.pbtxt").write_text(config)
    model = load_model(source)
    assert numbers(await model.infer(request(1, 2))) == [1, 2]
    told = MODEL_CONFIG.FromString((await model.status()).config)
    assert (told.backend, told.platform, told.default_model_filename) == ("python", "", "model.py")
    await model.close()


async def test_a_configuration_without_backend_in_place_of_the_model_s_own(tmp_path: Path) -> None:
    """Triton serves a Python model then, with a limit of the batch and no tensors that anybody declared."""
    python_model(tmp_path, ECHO)
    given = MODEL_CONFIG(max_batch_size=16).SerializeToString()
    model = load_model(ModelSource("m", tmp_path / "m", config=given))
    signature = await model.signature()
    assert (signature.max_batch_size, signature.inputs, signature.outputs) == (16, (), ())
    await model.close()


@pytest.mark.parametrize(
    ("names", "backend"),
    [
        (("model.onnx",), "onnxruntime"),
        (("model.pt",), "pytorch"),
        (("model.pt2",), "pytorch"),
        (("model.py",), "python"),
        (("model.py", "model.onnx"), "onnxruntime"),
        (("model.py", "model.pt"), "pytorch"),
    ],
)
def test_well_known_files(tmp_path: Path, names: tuple[str, ...], backend: str) -> None:
    assert broken(tmp_path / "m", *names) == backend


@pytest.mark.parametrize(
    ("name", "backend"), [("net.pt", "pytorch"), ("net.py", "python"), ("net.onnx", "onnxruntime")]
)
def test_the_suffix_of_a_stated_file(tmp_path: Path, name: str, backend: str) -> None:
    assert broken(tmp_path / "m", name, config=f'default_model_filename: "{name}"') == backend


async def test_a_version_that_is_being_written_tells_nothing(tmp_path: Path) -> None:
    python_model(tmp_path, AUTO + ECHO, None)
    (tmp_path / "m" / "config.pbtxt").write_text("version_policy { all { } }")
    (tmp_path / "m" / "2").mkdir()
    model = load_model(ModelSource("m", tmp_path / "m"))
    assert list(model.loaded) == ["1"]
    assert model.failed["2"].endswith("2/model.py: there is no such model file")
    await model.close()


async def test_a_single_file(tmp_path: Path) -> None:
    python_model(tmp_path, AUTO + ECHO, None)
    model = load_model(ModelSource("m", tmp_path / "m" / "1" / "model.py"))
    assert numbers(await model.infer(request(3))) == [3]
    await model.close()
    model = load_model(ModelSource("m", write_identity(tmp_path / "any_name")))
    assert (await model.ready()).ready
    await model.close()


def test_no_file_that_tells(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.plan").touch()
    said = r"/m: no backend is stated, and no version has one of model.onnx, model.pt, model.pt2, model.py"
    with pytest.raises(LoadError, match=said):
        load_model(ModelSource("m", tmp_path / "m"))
