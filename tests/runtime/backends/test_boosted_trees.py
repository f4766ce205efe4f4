"""Models of XGBoost and LightGBM answer what the libraries themselves answer, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.runtime.backends import lightgbm as lightgbm_backend
from interlingua.runtime.backends import xgboost as xgboost_backend
from interlingua.runtime.backends.tables import EstimatorInstance
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Tensor, TensorSpec
from tests.runtime.table_models import CLASSES, FEATURES, NUMBERS, ROWS, questions

TREES = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1}
LABELS = np.stack([CLASSES > 0, CLASSES > 1], 1).astype(int)
XGBOOST: dict[str, Any] = {
    "classes": xgboost.XGBClassifier(**TREES).fit(ROWS, CLASSES),
    "softmax": xgboost.XGBClassifier(objective="multi:softmax", **TREES).fit(ROWS, CLASSES),
    "two classes": xgboost.XGBClassifier(**TREES).fit(ROWS, CLASSES > 0),
    "labels": xgboost.XGBClassifier(**TREES).fit(ROWS, LABELS),
    "regressor": xgboost.XGBRegressor(**TREES).fit(ROWS, NUMBERS),
    "forest": xgboost.XGBRFClassifier(**TREES).fit(ROWS, CLASSES),
    "linear": xgboost.XGBRegressor(booster="gblinear", n_estimators=4, n_jobs=1).fit(ROWS, NUMBERS),
    "stopped early": xgboost.XGBRegressor(early_stopping_rounds=1, learning_rate=2.0, **TREES).fit(
        ROWS, NUMBERS, eval_set=[(ROWS[:20], -NUMBERS[:20])], verbose=False
    ),
}
MATRIX = xgboost.DMatrix(ROWS, CLASSES > 0)
BARE = {
    objective: xgboost.train({"objective": objective, "nthread": 1, "max_depth": 3}, MATRIX, 3)
    for objective in ("binary:logistic", "binary:logitraw", "reg:squarederror", "rank:pairwise")
}
LIGHTGBM = {
    objective: lightgbm.train(
        {"objective": objective, "verbose": -1, "num_threads": 1, "num_leaves": 4, "min_data_in_leaf": 2}
        | ({"num_class": 3} if objective == "multiclass" else {}),
        lightgbm.Dataset(ROWS, CLASSES if objective == "multiclass" else CLASSES > 0),
        3,
    )
    for objective in ("regression", "binary", "multiclass")
}


def ask(instance: EstimatorInstance, array: Any, *outputs: str) -> dict[str, Tensor]:
    names = outputs or tuple(spec.name for spec in instance.signature.outputs)
    return {each.name: each for each in instance.run((Tensor.from_numpy("x", array),), names)}


def same(answer: Tensor, expected: Any) -> bool:
    shape = expected.shape if expected.ndim > 1 else (*expected.shape, 1)
    spec = Tensor.from_numpy("expected", expected)
    return (answer.datatype, answer.shape, bytes(answer.view)) == (spec.datatype, shape, bytes(spec.view))


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize("name", XGBOOST)
def test_answers_are_those_of_xgboost_s_estimators(tmp_path: Path, name: str, suffix: str) -> None:
    model, rows = XGBOOST[name], questions(9)
    path = tmp_path / f"model.{suffix}"
    model.save_model(path)
    instance = xgboost_backend.load(path, ModelConfig())
    (given,) = instance.signature.inputs
    assert (given.datatype, given.shape) == (Datatype.FP64, (-1, FEATURES))
    assert instance.default_outputs == ("predict",)
    for dtype in ("f8", "f4"):
        answers = ask(instance, rows.astype(dtype))
        assert same(answers.pop("predict"), model.predict(rows.astype(dtype)))
        if hasattr(model, "predict_proba"):
            assert same(answers.pop("predict_proba"), model.predict_proba(rows.astype(dtype)))
        assert not answers


@pytest.mark.parametrize("objective", BARE)
def test_answers_are_those_of_a_booster(tmp_path: Path, objective: str) -> None:
    path = tmp_path / "model.ubj"
    BARE[objective].save_model(path)
    answers = ask(xgboost_backend.load(path, ModelConfig()), questions())
    assert answers.keys() == {"predict"}
    assert same(answers["predict"], BARE[objective].predict(xgboost.DMatrix(questions())))


@pytest.mark.parametrize("objective", LIGHTGBM)
def test_answers_are_those_of_lightgbm(tmp_path: Path, objective: str) -> None:
    path = tmp_path / "model.txt"
    LIGHTGBM[objective].save_model(path)
    instance = lightgbm_backend.load(path, ModelConfig())
    expected = LIGHTGBM[objective].predict(questions(), num_threads=1)
    assert same(ask(instance, questions())["predict"], expected)
    assert instance.signature.outputs[0].labels == (("0", "1", "2") if objective == "multiclass" else ())


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i1", "u2", "?"]), st.integers(1, 30), st.integers(0, 99)
)
def test_any_number_is_what_it_is_in_fp64(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, rows: int, seed: int
) -> None:
    array = (abs(questions(rows, seed)) * 9).astype(dtype)
    if not _LOADED:
        folder = tmp_path_factory.mktemp("models")
        XGBOOST["classes"].save_model(folder / "model.ubj")
        LIGHTGBM["multiclass"].save_model(folder / "model.txt")
        _LOADED.append(xgboost_backend.load(folder / "model.ubj", ModelConfig()))
        _LOADED.append(lightgbm_backend.load(folder / "model.txt", ModelConfig()))
    wide = array.astype("f8")
    assert same(ask(_LOADED[0], array)["predict_proba"], XGBOOST["classes"].predict_proba(wide))
    assert same(ask(_LOADED[1], array)["predict"], LIGHTGBM["multiclass"].predict(wide, num_threads=1))


_LOADED: list[EstimatorInstance] = []


def test_missing_and_infinite_values_are_the_library_s_affair(tmp_path: Path) -> None:
    path = tmp_path / "model.ubj"
    XGBOOST["classes"].save_model(path)
    instance = xgboost_backend.load(path, ModelConfig())
    rows = questions()
    rows[1, 2] = np.nan
    assert same(ask(instance, rows)["predict_proba"], XGBOOST["classes"].predict_proba(rows))
    rows[1, 2] = np.inf
    assert same(ask(instance, rows)["predict_proba"], XGBOOST["classes"].predict_proba(rows))
    XGBOOST["linear"].save_model(path)
    instance = xgboost_backend.load(path, ModelConfig())
    with pytest.raises(InferenceError, match="input 'x': XGBoost refuses it") as raised:
        ask(instance, rows)
    assert raised.value.code is ErrorCode.INVALID_TENSOR


def test_columns_are_inputs_where_a_configuration_declares_them(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    LIGHTGBM["binary"].save_model(path)
    names = LIGHTGBM["binary"].feature_name()
    config = ModelConfig(inputs=tuple(TensorSpec(name, Datatype.FP32, (-1, 1)) for name in reversed(names)))
    rows = questions().astype("f4")
    inputs = tuple(Tensor.from_numpy(name, rows[:, [place]]) for place, name in enumerate(names))
    (answer,) = lightgbm_backend.load(path, config).run(inputs, ("predict",))
    assert same(answer, LIGHTGBM["binary"].predict(rows, num_threads=1))


@pytest.mark.parametrize(
    ("name", "content"),
    [("model.json", b'{"labels": []}'), ("model.ubj", b"{"), ("model.ubj", b""), ("model.txt", b"trees\n")],
)
def test_files_of_something_else(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    backend = lightgbm_backend if name == "model.txt" else xgboost_backend
    with pytest.raises(LoadError, match=f"{name}: is not an? "):
        backend.load(path, ModelConfig())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.json", b'{"learner": {}}'),
        ("model.ubj", b"{L\0\0\0\0\0\0\0\x07learner"),
        ("model.txt", b"tree\n"),
    ],
)
def test_files_that_are_cut_short(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    backend = lightgbm_backend if name == "model.txt" else xgboost_backend
    with pytest.raises(LoadError, match=name):
        backend.load(path, ModelConfig())


def test_no_run_starts_more_threads_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {}
    monkeypatch.setattr("interlingua.runtime.cpus.EngineThreads.count", 2)
    booster = xgboost.Booster
    monkeypatch.setattr(
        xgboost,
        "Booster",
        lambda stated, **given: seen.update(xgboost=stated["nthread"]) or booster(stated, **given),
    )
    predict = lightgbm.Booster.predict
    monkeypatch.setattr(
        lightgbm.Booster,
        "predict",
        lambda self, table, num_threads: seen.update(lightgbm=num_threads) or predict(self, table),
    )
    XGBOOST["classes"].save_model(tmp_path / "model.ubj")
    xgboost_backend.load(tmp_path / "model.ubj", ModelConfig())
    LIGHTGBM["binary"].save_model(tmp_path / "model.txt")
    lightgbm_backend.load(tmp_path / "model.txt", ModelConfig())
    assert seen == {"xgboost": 2, "lightgbm": 2}
