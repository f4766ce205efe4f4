"""Runs forests of scikit-learn tree by tree, as ``ForestClassifier`` and ``ForestRegressor`` do.

The library passes every tree through joblib and through checks that a forest has done already: some 60 us
for each tree, which itself takes two. Here the same trees are summed in the same order. No answer differs:
functions that do not return the library's own bits, for rows drawn when a model is loaded, are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import Pipeline

from interlingua.runtime.backends.sklearn_checks import without_check

Function = Callable[[NDArray[Any]], NDArray[Any]]

_CLASSIFIERS = (ExtraTreesClassifier, RandomForestClassifier)
_REGRESSORS = (ExtraTreesRegressor, RandomForestRegressor)

_PROBES = 16


def forest_functions(model: Any) -> Mapping[str, Function]:
    """Functions with the names and the answers of those of ``model``, for tables of finite numbers that fit
    FP32 and have its columns; none if it is no forest, has several targets, or runs trees in parallel, whose
    sum has no order."""
    kind = type(model)
    if kind not in (*_CLASSIFIERS, *_REGRESSORS) or model.n_outputs_ != 1 or model.n_jobs not in (None, 1):
        return {}
    found = _classifier(model) if kind in _CLASSIFIERS else _regressor(model)
    rows = np.random.default_rng(0).normal(size=(_PROBES, model.n_features_in_))
    same = all(_alike(getattr(model, name), function, rows) for name, function in found.items())
    return found if same else {}


def pipeline_functions(model: Any) -> Mapping[str, Function]:
    """The same of a pipeline that ends in such a forest, for every table: the library runs its steps, and the
    forest for what :func:`forest_functions` omits."""
    forest = model.steps[-1][1] if type(model) is Pipeline else None
    if forest is None or hasattr(forest, "feature_names_in_"):
        return {}
    steps = [step.transform for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    found = {
        name: _after(steps, without_check(getattr(forest, name), forest.n_features_in_, quick))
        for name, quick in forest_functions(forest).items()
    }
    rows = np.random.default_rng(0).normal(size=(_PROBES, getattr(model, "n_features_in_", 0)))
    try:
        same = all(_alike(getattr(model, name), function, rows) for name, function in found.items())
    except Exception:
        return {}  # a step does not take these rows
    return found if same else {}


def _after(steps: Sequence[Function], function: Function) -> Function:
    def run(table: Any) -> Any:
        for step in steps:
            table = step(table)
        return function(table)

    return run


def _alike(theirs: Function, ours: Function, rows: NDArray[Any]) -> bool:
    expected, found = theirs(rows), ours(rows)
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    return (
        bool((expected == found).all()) if expected.dtype == object else expected.tobytes() == found.tobytes()
    )


def _classifier(model: Any) -> Mapping[str, Function]:
    trees, classes = [tree.tree_.predict for tree in model.estimators_], model.classes_
    count = len(classes)

    def predict_proba(table: NDArray[Any]) -> NDArray[Any]:
        rows = table.astype(np.float32)
        total = np.zeros((len(rows), count))
        for predict in trees:
            total += predict(rows)[:, :count]
        total /= len(trees)
        return total

    def predict(table: NDArray[Any]) -> NDArray[Any]:
        labels: NDArray[Any] = classes.take(np.argmax(predict_proba(table), axis=1), axis=0)
        return labels

    return {"predict": predict, "predict_proba": predict_proba}


def _regressor(model: Any) -> Mapping[str, Function]:
    trees = [tree.tree_.predict for tree in model.estimators_]

    def predict(table: NDArray[Any]) -> NDArray[Any]:
        rows = table.astype(np.float32)
        total = np.zeros(len(rows))
        for tree in trees:
            total += tree(rows)[:, 0]
        total /= len(trees)
        return total

    return {"predict": predict}
