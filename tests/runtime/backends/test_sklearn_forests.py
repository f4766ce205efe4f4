"""Forests of scikit-learn run without joblib, and answer the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier

from interlingua.runtime.backends.sklearn_forests import forest_functions
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
