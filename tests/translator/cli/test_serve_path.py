"""``interlingua serve PATH``: a model file or folder, with nothing else configured."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http
import yaml
from graphpipe import remote

from interlingua.translator.cli import main
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.serve_path import configuration, example_models
from interlingua.translator.config import parse
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp
from tests.translator.cli.serving import ROOT, Served, serve

MODELS = ROOT / "examples" / "models"
SUMS = {"INPUT0": np.arange(16, dtype="<i4").reshape(1, 16), "INPUT1": np.ones((1, 16), "<i4")}
SUM, DIFFERENCE = SUMS["INPUT0"] + 1, SUMS["INPUT0"] - 1


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A daemon on a single model file, started in the folder of the file."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copy(MODELS / "simple" / "1" / "model.onnx", folder / "simple.onnx")
    with serve("simple.onnx", cwd=folder) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("client", "at"), [("http", "every"), ("grpc", "every"), ("grpc", "grpc")], ids="-".join
)
def test_clients_of_triton(served: Served, client: str, at: str) -> None:
    module = getattr(tritonclient, client)
    given = []
    for name, array in SUMS.items():
        given.append(module.InferInput(name, array.shape, "INT32"))
        given[-1].set_data_from_numpy(array)
    with module.InferenceServerClient(getattr(served, at)) as triton:
        assert triton.is_server_ready()
        answer = triton.infer("simple", given)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), SUM)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), DIFFERENCE)


@pytest.mark.parametrize("path", ["", "/graphpipe/simple"])
def test_the_client_of_graphpipe(served: Served, path: str) -> None:
    """Also without a model in the path: there is one only."""
    url = f"http://{served.every}{path}"
    answers = remote.execute_multi(url, list(SUMS.values()), list(SUMS), ["OUTPUT0", "OUTPUT1"])
    np.testing.assert_array_equal(answers[0], SUM)
    np.testing.assert_array_equal(answers[1], DIFFERENCE)


@pytest.mark.parametrize("client", [TrtisHttp, TrtisGrpc])
def test_clients_of_version_1(served: Served, client: type[TrtisHttp | TrtisGrpc]) -> None:
    v1 = client(served.every)
    try:
        outputs = v1.infer("simple", SUMS, ["OUTPUT0", "OUTPUT1"]).outputs
    finally:
        v1.close()
    np.testing.assert_array_equal(outputs["OUTPUT0"], SUM)
    np.testing.assert_array_equal(outputs["OUTPUT1"], DIFFERENCE)


def test_operators(served: Served) -> None:
    assert requests.get(f"http://{served.admin}/health/ready", timeout=30).status_code == 200


def test_the_example_is_part_of_the_package() -> None:
    """With the image that it is tried with, and started anywhere."""
    with serve("--example", cwd=Path("/")) as daemon:
        image = np.load(example_models().parent / "seven.npy")
        label = remote.execute(f"http://{daemon.every}", image, "image", "label")
    assert label.tolist() == [[7]]


def stated(path: Path, port: int = 8000) -> dict[str, object]:
    """The configuration for ``path``, which must be valid."""
    text = configuration(path, "127.0.0.1", port)
    assert parse(text)
    return dict(yaml.safe_load(text))


def test_the_ports_are_those_of_triton() -> None:
    config = stated(MODELS)
    assert config["listeners"] == [
        {"listen": "127.0.0.1:8000", "transport": "any"},
        {"listen": "127.0.0.1:8001", "transport": "grpc"},
    ]
    assert config["admin"] == {"listen": "127.0.0.1:8002"}
    assert stated(MODELS, 9000)["admin"] == {"listen": "127.0.0.1:9002"}


def test_a_folder_of_models_is_a_repository() -> None:
    config = stated(MODELS)
    assert config["model_repository"] == [{"path": str(MODELS)}]
    assert "default_model" not in config


@pytest.mark.parametrize("name", ["digits", "multi_ver"])
def test_the_folder_of_a_model(name: str) -> None:
    config = stated(MODELS / name)
    assert config["model_repository"] == [{"path": str(MODELS), "load": [name]}]
    assert config["default_model"] == name


def test_a_folder_of_files(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx", "notes.txt", "a $b.onnx"):
        shutil.copy(MODELS / "simple" / "1" / "model.onnx", tmp_path / name)
    config = parse(configuration(tmp_path, "127.0.0.1", 0))
    assert {name: model.path for name, model in config.models.items()} == {
        name: f"{tmp_path}/{name}.onnx" for name in ("a", "b", "a $b")
    }


@pytest.mark.parametrize("settings", [None, {"name": "trees"}], ids=["KServe", "MLServer"])
def test_the_folder_of_a_model_without_versions(tmp_path: Path, settings: dict[str, str] | None) -> None:
    folder = tmp_path / "boosted"
    folder.mkdir()
    (folder / "model.json").write_text('{"learner": {}}')
    if settings is not None:
        (folder / "model-settings.json").write_text(json.dumps(settings))
    config = stated(folder)
    name = "boosted" if settings is None else "trees"
    assert config["model_repository"] == [{"path": str(tmp_path), "load": [name]}]
    files = stated(tmp_path / "boosted" / "model.json")
    assert files["models"] == {"model": {"backend": "xgboost", "path": f"{folder}/model.json"}}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere", "'nowhere' does not exist"),
        ("", "'.' has no model: neither folders nor .onnx, "),
        ("c.yaml", "no backend runs 'c.yaml': model files end in .onnx, "),
    ],
)
def test_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    if name.endswith(".yaml"):
        (tmp_path / name).write_text("")
    with pytest.raises(RefusedError) as refused:
        configuration(Path(name), "127.0.0.1", 0)
    assert str(refused.value).startswith(complaint)


def test_addresses_of_a_file_are_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-c", "c.yaml", "--port", "1"]) == 2
    assert "the file states its addresses" in capsys.readouterr().err


def test_no_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--example", "--host", "no host"]) == 2
    expected = "interlingua serve: --host: 'no host' is neither a name nor an address of this machine\n"
    assert capsys.readouterr().err == expected


def test_a_taken_port(served: Served) -> None:
    port = served.every.rpartition(":")[2]
    command = [sys.executable, "-m", "interlingua", "serve", "--example", "--port", port]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert f"127.0.0.1:{port}" in ran.stderr
