"""Runs models of scikit-learn: files of skops, and pickles of joblib where the operator permits them.

Loading a pickle executes what it contains, so it takes ``allow_pickle``, which no file that a client sends
has. A file of skops contains objects of types. Those that skops does not trust could execute code or read
other memory, so they take ``allow_pickle`` too; among them are the trees of scikit-learn.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import skops.io
import threadpoolctl
from skops.io.exceptions import UntrustedTypesFoundException

from interlingua.runtime.backends.sklearn_checks import checks_once, recognize_arrays, without_check
from interlingua.runtime.backends.sklearn_file import PERMISSION, SKOPS, examine
from interlingua.runtime.backends.sklearn_forests import forest_functions, pipeline_functions
from interlingua.runtime.backends.tables import Estimator, EstimatorInstance, load_table, run_threads
from interlingua.runtime.cpus import EngineThreads
from interlingua.runtime.model_config.config import LoadError, ModelConfig

_FUNCTIONS = ("predict", "predict_proba", "decision_function", "transform")
"""The functions that are outputs, if a model has them. MLServer has the same names, but no
decision_function."""

_BOUNDED = {
    *("calibration", "compose", "discriminant_analysis", "dummy", "ensemble", "isotonic", "linear_model"),
    *("multiclass", "multioutput", "naive_bayes", "neighbors", "neural_network", "pipeline", "preprocessing"),
    *("svm", "tree"),
}
"""The modules of scikit-learn whose models compute as many steps for one row as for another. Others may
iterate until they converge, and other packages may do anything."""

_OPENMP = threadpoolctl.ThreadpoolController().select(user_api="openmp")
_thread = threading.local()

recognize_arrays()
# what this warns of is our contract: the columns of an array are in the order of the features
warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)


def load(path: Path, config: ModelConfig) -> EstimatorInstance:
    """Load the model at ``path``. Raises ``LoadError`` for a pickle that is not permitted, for types that
    skops does not trust, naming them, and with the library's words for a file that it cannot read."""
    examine(path, config)
    model = _loaded(path, config.allow_pickle)
    functions = {name: getattr(model, name) for name in _FUNCTIONS if hasattr(model, name)}
    if not functions:
        raise LoadError(f"{path}: is a {type(model).__name__}, which has none of {', '.join(_FUNCTIONS)}")
    threads = run_threads(config)
    _bound_jobs(model, threads)
    if checks_once(_parts(model)):
        quick, columns = forest_functions(model), int(getattr(model, "n_features_in_", -1))
        functions = {
            name: without_check(function, columns, quick.get(name)) for name, function in functions.items()
        }
    functions |= pipeline_functions(model)
    if EngineThreads.count:
        # linear algebra has one pool of threads for all models
        threadpoolctl.threadpool_limits(EngineThreads.count, user_api="blas")
    classes = getattr(model, "classes_", ())
    estimator = Estimator(
        "scikit-learn",
        functions,
        int(getattr(model, "n_features_in_", -1)),
        tuple(str(name) for name in getattr(model, "feature_names_in_", ())),
        () if isinstance(classes, list) else tuple(str(each) for each in classes),
        frames=True,
        bounded=_is_bounded(model),
        holds_lock=True,
        prepare=_openmp_limit(threads),
    )
    return load_table(path, config, estimator)


def _loaded(path: Path, trusted: bool) -> Any:
    try:
        if path.suffix != SKOPS:
            return joblib.load(path)
        return skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path) if trusted else [])
    except UntrustedTypesFoundException as error:
        types = ", ".join(skops.io.get_untrusted_types(file=path))
        raise LoadError(f"{path}: has types that skops does not trust: {types}; {PERMISSION}") from error
    # whatever the code in a pickle raises
    except Exception as error:
        raise LoadError(f"{path}: {type(error).__name__}: {error}") from error


def _bound_jobs(model: Any, threads: int) -> None:
    """Let no part of ``model`` start more than ``threads`` threads or processes for a run."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    stated = {
        name: min(threads, joblib.effective_n_jobs(jobs))
        for name, jobs in parameters.items()
        if name.split("__")[-1] == "n_jobs" and jobs not in (None, 1)
    }
    if stated:
        model.set_params(**stated)


def _is_bounded(model: Any) -> bool:
    """Whether all parts of ``model`` are of modules whose runs the shapes of inputs bound."""
    names = [type(part).__module__.split(".") for part in _parts(model)]
    if not all(name[0] == "sklearn" and name[1] in _BOUNDED for name in names):
        return False
    return all(getattr(part, "n_jobs", None) in (None, 1) for part in _parts(model))


def _parts(model: Any) -> list[Any]:
    """``model`` and the models that it is made of."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    return [model, *(part for part in parameters.values() if hasattr(part, "get_params"))]


def _openmp_limit(threads: int) -> Callable[[], None]:
    """Bounds OpenMP in the calling thread, each of which has a limit of its own (OpenMP 5.2, section 2.1, ICV
    nthreads-var)."""

    def limit() -> None:
        if getattr(_thread, "openmp", None) != threads:
            _OPENMP.limit(limits=threads)
            _thread.openmp = threads

    return limit
