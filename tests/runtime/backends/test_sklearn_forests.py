"""Forests of scikit-learn run without joblib, and answer the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from interlingua.runtime.backends.sklearn_forests import forest_functions, pipeline_functions
from interlingua.schemas import InferenceError
from tests.runtime.backends.test_sklearn import ask, loaded, same
from tests.runtime.table_models import CLASSES, FEATURES, NAMES, NUMBERS, ROWS, questions

FORESTS: dict[str, Any] = {
    "classes": RandomForestClassifier(7, random_state=0).fit(ROWS, CLASSES),
    "words": RandomForestClassifier(7, random_state=0).fit(ROWS, NAMES[CLASSES]),
    "objects": ExtraTreesClassifier(7, random_state=0).fit(ROWS, NAMES[CLASSES].astype(object)),
    "truth": ExtraTreesClassifier(7, random_state=0).fit(ROWS, CLASSES > 0),
    "one class": RandomForestClassifier(3, random_state=0).fit(ROWS, CLASSES * 0),
    "missing": RandomForestClassifier(7, random_state=0).fit(np.where(ROWS > 2, np.nan, ROWS), CLASSES),
    "numbers": RandomForestRegressor(7, random_state=0).fit(ROWS, NUMBERS),
    "counts": RandomForestRegressor(7, criterion="poisson", random_state=0).fit(ROWS, NUMBERS**2),
    "extra numbers": ExtraTreesRegressor(7, random_state=0).fit(ROWS, NUMBERS),
}


@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("name", FORESTS)
def test_answers_are_the_library_s_own(tmp_path: Path, name: str, rows: int) -> None:
    model, instance = FORESTS[name], loaded(tmp_path, FORESTS[name])
    table = questions(rows)
    for answer in ask(instance, table).values():
        assert same(answer, getattr(model, answer.name)(table))
    for function, quick in forest_functions(model).items():
        assert quick(table).tobytes() == getattr(model, function)(table).tobytes() or name == "objects"
    assert set(forest_functions(model)) == {"predict", "predict_proba"} & set(dir(model))


def test_the_library_s_own_code_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = loaded(tmp_path, FORESTS["classes"])

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the library ran")

    monkeypatch.setattr("sklearn.ensemble._forest.Parallel", refuse)
    assert ask(instance, questions(), "predict")["predict"].shape == (5, 1)


@pytest.mark.parametrize("shape", [(2, FEATURES + 1), (2, 1), (0, FEATURES)])
def test_other_tables_are_refused_in_the_library_s_words(tmp_path: Path, shape: tuple[int, int]) -> None:
    table = np.zeros(shape)
    with pytest.raises(ValueError) as expected:
        FORESTS["classes"].predict(table)
    with pytest.raises(InferenceError) as raised:
        ask(loaded(tmp_path, FORESTS["classes"]), table, "predict")
    assert str(expected.value).split("\n\n")[0] in raised.value.message


def test_values_that_are_missing_are_the_library_s(tmp_path: Path) -> None:
    model, table = FORESTS["missing"], questions()
    table[2, 1] = np.nan
    assert same(ask(loaded(tmp_path, model), table, "predict")["predict"], model.predict(table))


def test_other_models_and_other_answers() -> None:
    targets = RandomForestClassifier(3, random_state=0).fit(ROWS, np.stack([CLASSES, CLASSES > 0], 1))
    parallel = RandomForestClassifier(3, n_jobs=2, random_state=0).fit(ROWS, CLASSES)
    assert not forest_functions(targets)
    assert not forest_functions(parallel)
    assert not forest_functions(DecisionTreeClassifier().fit(ROWS, CLASSES))

    class Own(RandomForestClassifier):
        """A forest with answers of its own."""

    assert not forest_functions(Own(3, random_state=0).fit(ROWS, CLASSES))
    # as with a release that computes otherwise
    broken = RandomForestClassifier(3, random_state=0).fit(ROWS, CLASSES)
    broken.predict_proba = lambda table: np.zeros((len(table), 3))
    assert not forest_functions(broken)


PIPELINES: dict[str, Any] = {
    "scaled classes": make_pipeline(StandardScaler(), RandomForestClassifier(7, random_state=0)),
    "two steps": make_pipeline(
        SimpleImputer(), "passthrough", PCA(2, random_state=0), ExtraTreesClassifier(5, random_state=0)
    ),
    "scaled numbers": make_pipeline(StandardScaler(), RandomForestRegressor(7, random_state=0)),
    "a forest alone": make_pipeline(RandomForestClassifier(7, random_state=0)),
    "a table of pandas": make_pipeline(
        StandardScaler().set_output(transform="pandas"), RandomForestClassifier(7, random_state=0)
    ),
    "a sparse table": make_pipeline(
        KBinsDiscretizer(3, strategy="uniform"), RandomForestClassifier(7, random_state=0)
    ),
}
for each in PIPELINES.values():
    each.fit(ROWS, NUMBERS if isinstance(each[-1], RandomForestRegressor) else CLASSES)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_that_end_in_a_forest(tmp_path: Path, name: str, rows: int) -> None:
    model, table = PIPELINES[name], questions(rows)
    for answer in ask(loaded(tmp_path, model), table).values():
        assert same(answer, getattr(model, answer.name)(table))


@pytest.mark.parametrize("value", [np.inf, 1e300])
@pytest.mark.parametrize("name", ["scaled classes", "two steps", "a forest alone"])
def test_a_pipeline_refuses_what_the_library_does(tmp_path: Path, name: str, value: float) -> None:
    table = questions(2)
    table[0, 1] = value
    with pytest.raises(ValueError) as expected, np.errstate(all="ignore"):
        PIPELINES[name].predict(table)
    with pytest.raises(InferenceError) as raised, np.errstate(all="ignore"):
        ask(loaded(tmp_path, PIPELINES[name]), table, "predict")
    assert str(expected.value).split("\n\n")[0] in raised.value.message


@pytest.mark.parametrize("name", ["scaled classes", "two steps", "scaled numbers", "a forest alone"])
def test_the_forest_of_a_pipeline_runs_without_joblib(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = loaded(tmp_path, PIPELINES[name])

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the library ran")

    monkeypatch.setattr("sklearn.ensemble._forest.Parallel", refuse)
    assert ask(instance, questions(), "predict")["predict"].shape == (5, 1)


def test_other_pipelines() -> None:
    class Own(Pipeline):
        """A pipeline with answers of its own."""

    assert not pipeline_functions(FORESTS["classes"])
    assert not pipeline_functions(
        make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(ROWS, CLASSES)
    )
    assert not pipeline_functions(Own(PIPELINES["scaled classes"].steps))
    shifted = make_pipeline(FunctionTransformer(np.flip), FORESTS["classes"])
    shifted.predict = lambda table: np.zeros(len(table), np.int64)
    assert not pipeline_functions(shifted)

    def refuse(table: Any) -> Any:
        raise ValueError("no such row")

    assert not pipeline_functions(make_pipeline(FunctionTransformer(refuse), FORESTS["classes"]))
