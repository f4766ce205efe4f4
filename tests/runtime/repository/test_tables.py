"""Folders with models of tables: laid out as for Triton, KServe or MLServer, and pickles in any of them."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import (
    ModelSource,
    Repository,
    examine_model,
    find_models,
    load_model,
)
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferRequest,
    ModelControl,
    RequestedOutput,
    Tensor,
)
from interlingua.schemas.model_config import MODEL_CONFIG
from tests.runtime.table_models import CLASSES, FEATURES, ROWS, questions, written

MODEL = LogisticRegression().fit(ROWS, CLASSES)
BOOSTER = xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(ROWS, CLASSES)
TREES = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(ROWS, CLASSES), 2)


def write(path: Path) -> Path:
    """A model in the format that the name of ``path`` states."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".skops":
        written(path.parent, MODEL, path.name)
    elif path.suffix in (".json", ".ubj"):
        BOOSTER.save_model(path)
    elif path.suffix == ".txt":
        TREES.save_model(path)
    else:
        joblib.dump(MODEL, path)
    return path


def source(folder: Path, allow_pickle: bool = True) -> ModelSource:
    return ModelSource(folder.name, folder, allow_pickle=allow_pickle)


def request(array: Any = None, *outputs: str, name: str = "x", model: str = "m") -> InferRequest:
    tensor = Tensor.from_numpy(name, questions() if array is None else array)
    return InferRequest(model, (tensor,), outputs=tuple(map(RequestedOutput, outputs)) or None)


async def config_of(model: Any) -> Any:
    return MODEL_CONFIG.FromString((await model.status()).config)


@pytest.mark.parametrize("place", ["m", "m/1", "m/3"])
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("model.skops", "sklearn"),
        ("model.joblib", "sklearn"),
        ("model.pkl", "sklearn"),
        ("model.ubj", "xgboost"),
        ("model.json", "xgboost"),
        ("model.txt", "lightgbm"),
    ],
)
async def test_a_folder_with_a_model_needs_no_configuration(
    tmp_path: Path, place: str, name: str, backend: str
) -> None:
    write(tmp_path / place / name)
    model = load_model(source(tmp_path / "m"))
    stated = await config_of(model)
    assert (stated.backend, stated.default_model_filename) == (backend, name)
    assert tuple(model.loaded) == (place[-1] if "/" in place else "1",)
    assert [output.name for output in (await model.infer(request())).outputs] == ["predict"]
    await model.close()


async def test_a_configuration_chooses_version_batch_and_outputs(tmp_path: Path) -> None:
    write(tmp_path / "m" / "1" / "model.skops")
    (tmp_path / "m" / "config.pbtxt").write_text(
        """
        backend: "sklearn" max_batch_size: 4
        input { name: "rows" data_type: TYPE_FP32 dims: [ 4 ] }
        output { name: "predict_proba" data_type: TYPE_FP64 dims: [ 3 ] }
        output { name: "predict" data_type: TYPE_INT64 dims: [ 1 ] }
        """
    )
    model = load_model(source(tmp_path / "m", allow_pickle=False))
    rows = questions(3).astype("f4")
    answer = await model.infer(request(rows, name="rows"))
    # declared outputs are all given, in the declared order
    assert [output.name for output in answer.outputs] == ["predict_proba", "predict"]
    assert bytes(answer.outputs[0].view) == MODEL.predict_proba(rows).tobytes()
    # what is declared is not open to other names and datatypes
    for refused, text in (
        (request(rows), "unexpected inference input 'x'"),
        (request(rows.astype("f8"), name="rows"), "'rows' data-type is 'FP64'"),
        (request(questions(5).astype("f4"), name="rows"), "batch-size must be <= 4"),
    ):
        with pytest.raises(InferenceError, match=text):
            await model.infer(refused)
    await model.close()


@pytest.mark.parametrize(
    ("name", "content"),
    [("model.json", '{"labels": ["tree"]}'), ("model.txt", "a tree\n"), ("model.ubj", "")],
)
def test_other_files_of_these_names_are_no_models(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / name).write_text(content)
    with pytest.raises(LoadError, match="there is no version folder"):
        load_model(source(tmp_path / "m"))
    # beside another model they do not matter
    write(tmp_path / "m" / "model.skops")
    assert examine_model(source(tmp_path / "m")) == []


@pytest.mark.parametrize("suffix", ["json", "ubj", "txt"])
def test_a_model_of_any_other_suffix_by_its_contents(tmp_path: Path, suffix: str) -> None:
    """MLServer's name of these files for both libraries."""
    shutil.copy(write(tmp_path / f"model.{suffix}"), tmp_path / "model.bst")
    folder = tmp_path / "m"
    folder.mkdir()
    shutil.move(tmp_path / "model.bst", folder)
    model = load_model(source(folder))
    assert model.loaded["1"].signature.outputs[0].name == "predict"


# --- pickles


class Executes:
    """Loading a pickle of it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_no_pickle_is_read_without_permission(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in ("model.joblib", "model.pickle", "model.pkl"):
        (tmp_path / "m" / name).write_bytes(pickle.dumps(Executes(tmp_path / "executed")))
        with pytest.raises(LoadError, match=f"{name}: is a pickle, .* `allow_pickle: true` of the model"):
            load_model(source(tmp_path / "m", allow_pickle=False))
        assert "is a pickle" in examine_model(source(tmp_path / "m", allow_pickle=False))[0]
        (tmp_path / "m" / name).unlink()
    # under another name it is none of skops either
    (tmp_path / "m" / "model.skops").write_bytes(pickle.dumps(Executes(tmp_path / "executed")))
    with pytest.raises(LoadError, match="is not a skops file"):
        load_model(source(tmp_path / "m"))
    assert not (tmp_path / "executed").exists()


async def test_a_pickle_that_a_client_sends_is_never_read(tmp_path: Path) -> None:
    write(tmp_path / "models" / "m" / "model.joblib")
    repository = Repository(tmp_path / "models", controlled=True, overrides="files", allow_pickle=True)
    catalog = ModelCatalog(repositories=[repository])
    await catalog.load("m")
    evil = pickle.dumps(Executes(tmp_path / "executed"))
    config = MODEL_CONFIG(backend="sklearn").SerializeToString()
    for files in (
        {"1/model.joblib": evil},
        {"1/model.pkl": evil},
        {"model.pkl": evil},
        {"1/model.skops": evil},
    ):
        for name in ("m", "another"):
            with pytest.raises(InferenceError, match="is a pickle|is not a skops file"):
                await catalog.load(name, ModelControl(config=config, files=files))
    assert not (tmp_path / "executed").exists()
    # the model from the files of the repository is served on
    assert (await catalog.find("m").infer(request())).outputs
    await catalog.close()


async def test_a_forest_that_a_client_sends_takes_no_trust_of_the_repository(tmp_path: Path) -> None:
    from sklearn.tree import DecisionTreeClassifier

    content = written(tmp_path, DecisionTreeClassifier().fit(ROWS, CLASSES)).read_bytes()
    (tmp_path / "models").mkdir()
    repository = Repository(tmp_path / "models", controlled=True, overrides="files", allow_pickle=True)
    catalog = ModelCatalog(repositories=[repository])
    control = ModelControl(
        config=MODEL_CONFIG(backend="sklearn").SerializeToString(), files={"1/model.skops": content}
    )
    with pytest.raises(InferenceError, match="types that skops does not trust: sklearn.tree._tree.Tree"):
        await catalog.load("m", control)
    await catalog.close()


# --- MLServer


def mlserver(folder: Path, settings: dict[str, Any], file: str = "model.joblib") -> Path:
    write(folder / file)
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


SKLEARN = {"implementation": "mlserver_sklearn.SKLearnModel"}


@pytest.mark.parametrize(
    ("implementation", "file"),
    [
        ("mlserver_sklearn.SKLearnModel", "model.joblib"),
        ("mlserver_xgboost.XGBoostModel", "model.json"),
        ("mlserver_lightgbm.LightGBMModel", "model.txt"),
    ],
)
async def test_an_mlserver_repository_is_served_unchanged(
    tmp_path: Path, implementation: str, file: str
) -> None:
    settings = {
        "name": "iris",
        "implementation": implementation,
        "parameters": {"uri": f"./{file}", "version": "v3"},
    }
    mlserver(tmp_path / "folder-of-iris", settings, file)
    (tmp_path / "settings.json").write_text("{}")
    repository = Repository(tmp_path, controlled=True, allow_pickle=True)
    assert repository.names() == ["iris"]
    assert (repository.holds("iris"), repository.holds("folder-of-iris")) == (True, False)
    catalog = ModelCatalog(repositories=[repository])
    await catalog.load("iris")
    model = catalog.find("iris")
    assert tuple(model.loaded) == ("3",)
    assert (await model.metadata("v3")).versions == ("3",)
    # names and datatypes of inputs are the client's choice, the answer of unnamed outputs is `predict`
    for given in (request(name="input-0"), request(questions().astype("f4"), name="predict")):
        assert [output.name for output in (await model.infer(given)).outputs] == ["predict"]
    await catalog.close()


async def test_settings_at_any_depth(tmp_path: Path) -> None:
    """As MLServer finds them, also below folders of another model."""
    for place, name in (("team/a", "first"), ("team/b/deep", ""), ("team/.hidden", "no"), ("top", "top")):
        mlserver(tmp_path / place, {"name": name, "implementation": "mlserver_sklearn.SKLearnModel"})
    mlserver(tmp_path / "top" / "below", {"implementation": "mlserver_sklearn.SKLearnModel"})
    (tmp_path / "empty").mkdir()
    triton = tmp_path / "triton" / "1"
    mlserver(triton, {"implementation": "mlserver_sklearn.SKLearnModel"})
    (triton.parent / "config.pbtxt").write_text('backend: "sklearn"')
    (tmp_path / "circle").symlink_to(tmp_path)

    repository = Repository(tmp_path, controlled=True, allow_pickle=True)
    assert repository.names() == ["below", "circle", "deep", "empty", "first", "top", "triton"]
    for name in ("first", "deep", "top", "below", "triton"):
        assert repository.holds(name)
    assert not repository.holds("team")
    catalog = ModelCatalog({}, {}, [repository])
    for name in ("first", "deep", "top", "below"):
        await catalog.load(name)
        response = await catalog.find(name).infer(request(model=name))
        assert response.outputs[0].numpy().ravel().tolist() == MODEL.predict(questions()).tolist()
    await catalog.close()


async def test_versions_in_folders_of_their_own(tmp_path: Path) -> None:
    """As MLServer has them: settings of one name below one folder."""
    other = LogisticRegression().fit(-ROWS, CLASSES)
    for number, model in ((1, MODEL), (2, other)):
        folder = tmp_path / "iris" / f"v{number}"
        mlserver(
            folder, {"name": "m", **SKLEARN, "parameters": {"uri": "./model.joblib", "version": f"v{number}"}}
        )
        joblib.dump(model, folder / "model.joblib")
    repository = Repository(tmp_path, controlled=True, allow_pickle=True)
    assert repository.names() == ["m"]
    catalog = ModelCatalog(repositories=[repository])
    await catalog.load("m")

    async def answered(version: str) -> Any:
        asked = replace(request(), version=version)
        return (await catalog.find("m").infer(asked)).outputs[0].numpy().ravel().tolist()

    expected = {"1": MODEL.predict(questions()).tolist(), "2": other.predict(questions()).tolist()}
    assert {number: await answered(number) for number in expected} == expected
    assert await answered("") == expected["2"], "the highest version"
    before = catalog.find("m")
    await catalog.load("m")
    assert catalog.find("m") is before
    joblib.dump(MODEL, tmp_path / "iris" / "v2" / "model.joblib")
    await catalog.load("m")
    assert await answered("") == expected["1"]
    settings = tmp_path / "iris" / "v2" / "model-settings.json"
    settings.write_text(settings.read_text().replace("./model.joblib", "./other.joblib"))
    with pytest.raises(InferenceError, match="differ from those in .* in more than the version"):
        await catalog.load("m")
    await catalog.close()


async def test_versions_with_names(tmp_path: Path) -> None:
    """As in MLServer's examples, whose clients request ``/versions/v0.1.0``; its newest is the last name."""
    others = {
        name: LogisticRegression().fit(ROWS * sign, CLASSES) for name, sign in (("v0.2.0", -1), ("2", 1))
    }
    for name, model in {"v0.1.0": MODEL, **others}.items():
        settings = {"name": "m", **SKLEARN, "parameters": {"uri": "./model.joblib", "version": name}}
        joblib.dump(model, mlserver(tmp_path / "iris" / name, settings) / "model.joblib")
    model = load_model(Repository(tmp_path, controlled=True, allow_pickle=True).source("m"))

    async def answered(version: str) -> tuple[str, Any]:
        response = await model.infer(replace(request(), version=version))
        return response.version, response.outputs[0].numpy().ravel().tolist()

    expected = {
        name: each.predict(questions()).tolist() for name, each in {"v0.1.0": MODEL, **others}.items()
    }
    for name, values in expected.items():
        assert await answered(name) == (name, values)
    assert await answered("") == ("4", expected["v0.2.0"])
    assert await answered("3") == ("3", expected["v0.1.0"])
    assert (await model.metadata()).versions == ("2", "3", "4")
    assert (await model.metadata("v0.1.0")).versions == ("2", "3", "4")
    assert (await model.ready("v0.1.0")).ready
    assert "v0.3.0" in (await model.ready("v0.3.0")).reason
    await model.close()


async def test_a_version_with_a_name_alone(tmp_path: Path) -> None:
    settings = {"name": "m", **SKLEARN, "parameters": {"version": "v0.1.0"}}
    model = load_model(source(mlserver(tmp_path / "m", settings)))
    assert tuple(model.loaded) == ("1",)
    for version, reported in (("", "1"), ("1", "1"), ("v0.1.0", "v0.1.0")):
        assert (await model.infer(replace(request(), version=version))).version == reported
    await model.close()


async def test_mlserver_s_settings_state_inputs_batches_and_the_default_output(tmp_path: Path) -> None:
    mlserver(
        tmp_path / "m",
        SKLEARN
        | {
            "name": "m",
            "inputs": [
                {"name": "rows", "datatype": "FP32", "shape": [-1, 7], "parameters": {"content_type": "np"}}
            ],
            "outputs": [{"name": "whatever", "datatype": "INT8", "shape": [1]}],
            "max_batch_size": 16,
            "max_batch_time": 0.002,
            "parameters": {"extra": {"predict_fn": "predict_proba"}},
        },
    )
    model = load_model(source(tmp_path / "m"))
    stated = await config_of(model)
    assert list(stated.dynamic_batching.preferred_batch_size) == [16]
    assert stated.dynamic_batching.max_queue_delay_microseconds == 2000
    (spec,) = (await model.signature()).inputs
    assert (spec.name, spec.datatype, spec.shape) == ("rows", Datatype.FP32, (-1, FEATURES))
    rows = questions(20).astype("f4")
    for name in ("rows", "any"):
        (answer,) = (await model.infer(request(rows, name=name))).outputs
        assert (answer.name, bytes(answer.view)) == ("predict_proba", MODEL.predict_proba(rows).tobytes())
    with pytest.raises(InferenceError, match="'any' data-type is 'FP64'"):
        await model.infer(request(rows.astype("f8"), name="any"))
    await model.close()


async def test_mlserver_s_columns(tmp_path: Path) -> None:
    columns = [{"name": f"c{place}", "datatype": "FP64", "shape": [-1, 1]} for place in range(FEATURES)]
    mlserver(tmp_path / "m", SKLEARN | {"inputs": columns})
    model = load_model(source(tmp_path / "m"))
    rows = questions()
    inputs = tuple(Tensor.from_numpy(f"c{place}", rows[:, [place]]) for place in reversed(range(FEATURES)))
    (answer,) = (await model.infer(InferRequest("m", inputs))).outputs
    assert bytes(answer.view) == MODEL.predict(rows).tobytes()
    await model.close()


@pytest.mark.parametrize("uri", ["", ".", "./", "sub", "./sub/", "sub/model.joblib", "file:sub/model.joblib"])
def test_a_uri_is_a_file_or_a_folder(tmp_path: Path, uri: str) -> None:
    place = "sub/model.joblib" if "sub" in uri else "model.joblib"
    mlserver(tmp_path / "m", SKLEARN | {"parameters": {"uri": uri}}, place)
    assert examine_model(source(tmp_path / "m")) == []
    assert tuple(load_model(source(tmp_path / "m")).loaded) == ("1",)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"implementation": "models.MyModel"},
            "implementation 'models.MyModel' is not one of mlserver_sklearn",
        ),
        ({"implementation": 3}, "implementation has the wrong type"),
        (
            SKLEARN | {"parameters": {"uri": "../m/model.joblib"}},
            "parameters.uri .* is not a path in the model",
        ),
        (SKLEARN | {"parameters": {"uri": "/etc/passwd"}}, "parameters.uri '/etc/passwd' is not a path in"),
        (SKLEARN | {"parameters": {"uri": "s3://b/model"}}, "parameters.uri 's3://b/model' is not a path in"),
        (SKLEARN | {"parameters": []}, "parameters has the wrong type"),
        (
            SKLEARN | {"inputs": [{"name": "x", "datatype": "FP33", "shape": [1]}]},
            "input 'x' has no data_type",
        ),
        (SKLEARN | {"inputs": [3]}, "inputs: has an item that is no object"),
        (SKLEARN | {"inputs": [{"name": "x", "shape": ["n"]}]}, "shape has an item that is no integer"),
        (SKLEARN | {"max_batch_size": True}, "max_batch_size has the wrong type"),
        (SKLEARN | {"parameters": {"extra": {"predict_fn": "explain"}}}, "predict_fn .*'explain'"),
        ([], "is no object"),
    ],
)
def test_settings_that_cannot_be_served(tmp_path: Path, settings: Any, reason: str) -> None:
    mlserver(tmp_path / "m", settings)
    with pytest.raises(LoadError, match=reason):
        load_model(source(tmp_path / "m"))


@pytest.mark.parametrize(
    "uri",
    [
        *("..", "../../etc/x.joblib", "sub/../../x.joblib", "file:../x.joblib", "file:///etc/x.joblib"),
        *("//host/x.joblib", "///etc/x.joblib", " /etc/x.joblib", ".\t./x.joblib", "x\0.joblib"),
    ],
)
def test_a_uri_that_leads_out_of_the_folder_is_refused_by_name(tmp_path: Path, uri: str) -> None:
    folder = mlserver(tmp_path / "m", SKLEARN | {"parameters": {"uri": uri}})
    (tmp_path / "x.joblib").write_text("")
    with pytest.raises(LoadError, match=r"json: parameters\.uri '.*' is not a path in the model's folder"):
        load_model(source(folder))


def test_a_uri_may_be_a_link_of_the_operator(tmp_path: Path) -> None:
    """As in any model folder: deployments mount files as links to a store."""
    folder = mlserver(tmp_path / "m", SKLEARN | {"parameters": {"uri": "model.joblib"}})
    (folder / "model.joblib").rename(tmp_path / "store.joblib")
    (folder / "model.joblib").symlink_to(tmp_path / "store.joblib")
    assert tuple(load_model(source(folder)).loaded) == ("1",)


def test_settings_that_are_no_json(tmp_path: Path) -> None:
    mlserver(tmp_path / "m", {}).joinpath("model-settings.json").write_text("{")
    with pytest.raises(LoadError, match=r"model-settings\.json: "):
        load_model(source(tmp_path / "m"))
    assert [each.name for each in find_models(tmp_path)] == ["m"]


def test_names_that_are_none_of_a_model_are_not_taken(tmp_path: Path) -> None:
    for folder, name in (
        ("a", "../b"),
        ("b", ".hidden"),
        ("c", "a"),
        ("d", "twice"),
        ("e", "twice"),
        ("twice", ""),
    ):
        mlserver(tmp_path / folder, SKLEARN | {"name": name})
    repository = Repository(tmp_path)
    assert repository.names() == ["a", "b", "twice"]
    assert [repository.folder(name).name for name in repository.names()] == ["a", "b", "twice"]


def test_config_pbtxt_comes_before_mlserver_s_settings(tmp_path: Path) -> None:
    folder = mlserver(tmp_path / "m", {"name": "other", "implementation": "x.Y"})
    (folder / "config.pbtxt").write_text('backend: "sklearn" default_model_filename: "model.joblib"')
    assert Repository(tmp_path).names() == ["m"]
    model = load_model(source(folder))
    assert model.loaded["1"].signature.inputs[0].shape == (-1, FEATURES)
    assert np.isfinite(MODEL.coef_).all()
