"""Runs models of LightGBM, in its text format: ``predict`` is that of ``Booster``, as with MLServer."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import lightgbm

from interlingua.runtime.backends.lightgbm_file import examine
from interlingua.runtime.backends.tables import Estimator, EstimatorInstance, load_table, run_threads
from interlingua.runtime.model_config.config import LoadError, ModelConfig


def load(path: Path, config: ModelConfig) -> EstimatorInstance:
    """Load the model at ``path``. Raises ``LoadError`` for a file that is not a LightGBM model, or that
    the library cannot read, with its words."""
    examine(path, config)
    try:
        booster = lightgbm.Booster(model_file=path)
    except lightgbm.basic.LightGBMError as error:
        raise LoadError(f"{path}: {error}") from error
    predict = partial(booster.predict, num_threads=run_threads(config))
    estimator = Estimator(
        "LightGBM",
        {"predict": predict},
        booster.num_feature(),
        tuple(booster.feature_name()),
        tuple(str(number) for number in range(booster.num_model_per_iteration())),
        narrow=True,
        bounded=True,
    )
    return load_table(path, config, estimator)
