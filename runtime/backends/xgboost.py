"""Runs models of XGBoost: JSON and UBJSON.

Answers are those of XGBoost's scikit-learn interface, as with MLServer. A file that XGBClassifier wrote is a
classifier: ``predict`` is the class, ``predict_proba`` the probabilities. Of every other file ``predict`` is
what the objective returns, for example the probability with ``binary:logistic``. A model that was trained
with early stopping uses its best iteration. The interface itself is not needed, which costs ten times as
much per call and requires scikit-learn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import xgboost
from scipy.special import softmax

from interlingua.runtime.backends.tables import Estimator, EstimatorInstance, load_table, run_threads
from interlingua.runtime.backends.xgboost_file import examine
from interlingua.runtime.model_config.config import LoadError, ModelConfig

Predict = Callable[..., Any]


def load(path: Path, config: ModelConfig) -> EstimatorInstance:
    """Load the model at ``path``. Raises ``LoadError`` for a file that is not an XGBoost model, or that
    the library cannot read, with its words."""
    examine(path, config)
    try:
        # as bytes, because a name may imply the wrong one of the two formats
        booster = xgboost.Booster({"nthread": run_threads(config)}, model_file=bytearray(path.read_bytes()))
        learner = orjson.loads(booster.save_config())["learner"]
    except xgboost.core.XGBoostError as error:
        raise LoadError(f"{path}: {str(error).strip()}") from error
    predict = _predict(booster, learner["gradient_booster"]["name"])
    functions: dict[str, Callable[[Any], Any]] = {"predict": predict}
    classes = 0
    if orjson.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type") == "classifier":
        classes = max(2, int(learner["learner_model_param"]["num_class"]))
        functions = _classifier(predict, learner["objective"]["name"], classes)
    estimator = Estimator(
        "XGBoost",
        functions,
        booster.num_features(),
        tuple(booster.feature_names or ()),
        tuple(str(number) for number in range(classes)),
        narrow=True,
        bounded=True,
    )
    return load_table(path, config, estimator)


def _predict(booster: xgboost.Booster, kind: str) -> Predict:
    best = booster.attr("best_iteration")
    iterations = (0, int(best) + 1) if best is not None and kind != "gblinear" else (0, 0)
    if kind == "gblinear":
        # not thread-safe, and not in place
        lock = threading.Lock()

        def predict_alone(table: Any, margin: bool = False) -> Any:
            with lock:
                return booster.predict(
                    xgboost.DMatrix(table, nthread=1), output_margin=margin, validate_features=False
                )

        return predict_alone

    def predict(table: Any, margin: bool = False) -> Any:
        return booster.inplace_predict(
            table, iteration_range=iterations, predict_type="margin" if margin else "value"
        )

    return predict


def _classifier(predict: Predict, objective: str, classes: int) -> dict[str, Callable[[Any], Any]]:
    """The functions of XGBClassifier, as xgboost/sklearn.py computes them."""

    def labels(table: Any) -> Any:
        found = predict(table)
        if found.ndim > 1 and classes != 2:
            return np.argmax(found, axis=1)
        if found.ndim > 1 and found.shape[1] != 1:
            # a column for each label
            return (found > 0.5).astype(np.float64)
        if objective == "multi:softmax":
            return found.astype(np.int32)
        return (found > 0.5).astype(np.int64)

    def probabilities(table: Any) -> Any:
        if objective == "multi:softmax":
            return softmax(predict(table, margin=True), axis=1)
        found = predict(table)
        if found.ndim == 2 and found.shape[1] > 1:
            return found
        return np.vstack((1.0 - found, found)).transpose()

    return {"predict": labels, "predict_proba": probabilities}
