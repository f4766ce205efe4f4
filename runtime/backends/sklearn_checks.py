"""Shortens what scikit-learn checks before it computes, which takes longer than a small model.

No answer and no refusal differs: a check is omitted where its result is known. A call of
``LogisticRegression.predict`` with one row takes a third less.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn

_LARGEST = 1e76
"""The sum of squares below which no number is too large for FP32, to which trees convert."""

_CHECKED_ONCE = {
    *("discriminant_analysis", "ensemble", "linear_model", "naive_bayes", "neural_network", "svm", "tree"),
}
"""The modules whose models check that the numbers of their input are finite, and no others. Models made of
models check what these return."""


def checks_once(parts: list[Any]) -> bool:
    """Whether the model with ``parts``, itself first, checks only its input for finite numbers."""
    package, _, module = type(parts[0]).__module__.partition(".")
    return len(parts) == 1 and package == "sklearn" and module.split(".")[0] in _CHECKED_ONCE


def without_check(
    function: Callable[[Any], Any], columns: int, quick: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """``function`` of a model that :func:`checks_once`, without the check where all numbers are finite;
    ``quick`` takes its place for tables that also have as many ``columns`` as the model, and rows."""

    def run(table: Any) -> Any:
        if not _is_finite(table):
            return function(table)
        if quick is not None and table.shape[1:] == (columns,) and len(table):
            return quick(table)
        # this is the configuration of the calling thread; the context manager for it takes ten times as long
        sklearn.set_config(assume_finite=True)
        try:
            return function(table)
        finally:
            sklearn.set_config(assume_finite=False)

    return run


def _is_finite(table: Any) -> bool:
    if type(table) is not np.ndarray or table.dtype.char not in "fd":
        return False
    numbers = table.ravel()
    # false for NaN, and for infinity, to which the sum may overflow
    with np.errstate(over="ignore", invalid="ignore"):
        return float(numbers.dot(numbers)) < _LARGEST


def recognize_arrays() -> None:
    """Let narwhals, which scikit-learn calls from 1.9 on, see at once that an array is not a data frame."""
    try:
        dependencies = importlib.import_module("narwhals.stable.v2.dependencies")
    except ImportError:
        return
    for name in ("is_into_dataframe", "is_into_series"):
        known = getattr(dependencies, name)
        if not hasattr(known, "arrays"):
            setattr(dependencies, name, _no_array(known))


def _no_array(known: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_into(native: Any) -> bool:
        return type(native) is not np.ndarray and known(native)

    is_into.arrays = True  # type: ignore[attr-defined]
    return is_into
