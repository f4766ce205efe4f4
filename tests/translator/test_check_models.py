"""What ``check`` finds of models that ``serve`` could not load."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlingua.translator.cli import main
from tests.runtime.backends.test_files import zipmap

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"
PYTHON = 'backend: "python"\ninput { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 }'
ENSEMBLE = """
platform: "ensemble"
input { name: "A" data_type: TYPE_FP32 dims: 1 }
output { name: "B" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling { step { model_name: "%s" model_version: -1
  input_map { key: "X" value: "A" } output_map { key: "Y" value: "B" } } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def model(name: str, content: bytes | str = b"", file: str = "model.onnx", config: str = "") -> Path:
    """A model folder in the repository ``models``."""
    version = Path("models", name, "1")
    version.mkdir(parents=True)
    if content:
        (version / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    if config:
        (version.parent / "config.pbtxt").write_text(config)
    return version / file


def checked(capsys: pytest.CaptureFixture[str], *options: str, **document: Any) -> tuple[int, list[str]]:
    """The exit code of ``check``, and its lines about what is wrong."""
    document = {"listeners": [{"listen": "127.0.0.1:0", "transport": "http"}], **document}
    Path("c.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    code = main(["check", "-c", "c.yaml", *options])
    return code, capsys.readouterr().err.splitlines()


REPOSITORY = {"model_repository": [{"path": "models"}]}


def test_models_that_can_be_loaded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(EXAMPLES / "digits", "models/digits")
    model("e", config=ENSEMBLE % "digits")
    model("p", "class TritonPythonModel: pass", "model.py", PYTHON)
    assert checked(capsys, **REPOSITORY) == (0, [])


def test_every_model_that_cannot_is_reported_on_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model("empty")
    model("broken", b"<html>")
    model("typo", b"x", config='nam: "typo"')
    model("syntax", "def f(:", "model.py", PYTHON)
    model("ensemble", config=ENSEMBLE % "nobody")
    zipmap(model("zip"))
    os.mkdir("models/hollow")
    models = {"stated": {"backend": "onnxruntime", "path": "models/broken/1/model.onnx"}}
    code, lines = checked(capsys, **REPOSITORY, models=models)
    assert code == 1
    told = {line.partition("model '")[2].partition("'")[0]: line for line in lines}
    assert set(told) == {"empty", "broken", "typo", "syntax", "ensemble", "zip", "hollow", ""}
    for name, line in told.items():
        place = (
            "c.yaml:5: model_repository[0]: model '" if name else "c.yaml:7: models.stated: cannot be loaded"
        )
        assert line.startswith(place), line
    assert "models/empty: no backend is stated, and no version has one of" in told["empty"]
    assert "is no ONNX model, or damaged" in told["broken"] and "is no ONNX model" in told[""]
    assert "models/syntax/1/model.py, line 1: invalid syntax" in told["syntax"]
    assert "a step uses model 'nobody', which does not exist" in told["ensemble"]
    assert "options={'zipmap': False}" in told["zip"]
    assert "models/hollow: there is no version folder" in told["hollow"]


def test_an_engine_that_is_not_installed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlingua.runtime.backends.find_spec", lambda name: None)
    path = str(EXAMPLES / "digits")
    code, (line,) = checked(capsys, models={"digits": {"backend": "onnxruntime", "path": path}})
    assert code == 1
    assert line.startswith("c.yaml:5: models.digits: cannot be loaded: ")
    assert line.endswith("is missing: there is no onnxruntime; pip install 'interlingua[onnx]'")


INITIALIZE = """
import triton_python_backend_utils
class TritonPythonModel:
    def initialize(self, args):
        open(args["model_repository"] + "/ran", "w").close()
        raise ValueError("no weights here")

    def execute(self, requests):
        return []
"""


def test_what_an_engine_alone_can_tell_is_found_by_loading(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name of a tensor that the file does not have, and a model whose own code fails."""
    shutil.copytree(EXAMPLES / "digits", "models/digits")
    model("fails", INITIALIZE, "model.py", PYTHON)
    shutil.copytree(EXAMPLES / "digits" / "1", "models/other/1")
    stated = 'input { name: "other" data_type: TYPE_FP32 dims: 64 }'
    Path("models/other/config.pbtxt").write_text(stated)
    assert checked(capsys, **REPOSITORY) == (0, [])
    assert not list(folder.rglob("ran"))
    code, lines = checked(capsys, "--load", **REPOSITORY)
    assert code == 1 and len(lines) == 2 and list(folder.rglob("ran"))
    assert all(line.startswith("c.yaml:5: model_repository[0]: model '") for line in lines)
    assert "model 'fails' cannot be loaded" in lines[0] and "no weights here" in lines[0]
    assert "model 'other' cannot be loaded" in lines[1]


def test_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model("broken", b"<html>")
    document = {"listeners": [{"listen": "127.0.0.1:0", "transport": "http"}], **REPOSITORY}
    Path("c.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    assert main(["check", "-c", "c.yaml", "--probe", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (problem,) = told["models"]
    assert (told["servers"], problem["line"], problem["key"]) == ([], 5, "model_repository[0]")
    assert problem["text"].startswith(
        "model 'broken' cannot be loaded: models/broken/1/model.onnx: is no ONNX"
    )
